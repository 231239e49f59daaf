//! `tidegate man`: manual pages, from the definitions that `--help` is made of.
//!
//! Notes and examples are laid out by hand for `--help`, so they are copied line by line; the
//! generator would fill them into paragraphs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::Failure;
use crate::args::NoConfig;
use crate::exit::Exit;
use crate::output::Output;

/// Print the manual page of a command
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Command, for instance `ops list` [default: tidegate itself]
    command: Vec<String>,

    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) file: NoConfig,
}

const EXAMPLES: &str = "\
Examples:
  tidegate man serve | man --local-file -
  tidegate man --out ~/.local/share/man/man1";

pub(super) fn run(args: &ManArgs, output: &Output) -> Result<(), Failure> {
    let mut root = crate::args::Args::command().disable_help_subcommand(true);
    // Gives every command its whole name, and the options that it shares with others.
    root.build();
    match &args.out {
        Some(folder) => write_all(&root, folder),
        None => print(&root, &args.command, output),
    }
}

fn print(root: &Command, names: &[String], output: &Output) -> Result<(), Failure> {
    let mut command = root;
    for name in names {
        command = command.find_subcommand(name).ok_or_else(|| {
            let error = anyhow!("`COMMAND` is `{}`, expected a command", names.join(" "));
            let hint = "`tidegate --help` lists the commands";
            Failure::new(Exit::Usage, error).with_hint(hint)
        })?;
    }
    output.bytes(&page(command).map_err(cannot_write)?)
}

fn write_all(root: &Command, folder: &Path) -> Result<(), Failure> {
    let context = || format!("cannot write manual pages into `{}`", folder.display());
    let written = fs::create_dir_all(folder).and_then(|()| write_with_subcommands(root, folder));
    written.with_context(context).map_err(cannot_write)
}

fn write_with_subcommands(command: &Command, folder: &Path) -> io::Result<()> {
    let name = Man::new(command.clone()).get_filename();
    fs::write(folder.join(name), page(command)?)?;
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_with_subcommands(subcommand, folder)?;
    }
    Ok(())
}

fn cannot_write(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::Failed, error)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut page = title(command).into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let notes = command.get_after_long_help();
    if let Some(notes) = notes.or_else(|| command.get_after_help()) {
        for (title, lines) in sections(&notes.to_string()) {
            as_written(title, &lines).to_writer(&mut page)?;
        }
    }
    Ok(page)
}

/// Without a date: the day of the build would make two builds of one version differ. The generator
/// leaves an empty date out, and what follows it would move to its place.
fn title(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or("tidegate");
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH {name} 1 \"\" \"tidegate {version}\" Tidegate\n")
}

/// The notes of a command by their headings, such as `Examples:`, which stand alone at the beginning
/// of a line above indented ones.
fn sections(notes: &str) -> Vec<(String, Vec<&str>)> {
    let mut sections = Vec::new();
    let (mut title, mut lines) = ("NOTES".to_owned(), Vec::new());
    let mut rest = notes.lines().peekable();
    while let Some(line) = rest.next() {
        let is_above_indented = rest.peek().is_some_and(|next| next.starts_with(' '));
        let heading = line.strip_suffix(':').filter(|_| is_above_indented);
        match heading.filter(|heading| !heading.starts_with(' ')) {
            None => lines.push(line),
            Some(heading) => {
                sections.push((title, lines));
                (title, lines) = (heading.to_uppercase(), Vec::new());
            }
        }
    }
    sections.push((title, lines));
    sections.retain(|(_, lines)| lines.iter().any(|line| !line.is_empty()));
    sections
}

fn as_written(title: String, lines: &[&str]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title.as_str()]);
    roff.control("nf", []);
    let last = lines.iter().rposition(|line| !line.is_empty());
    for line in &lines[..=last.unwrap_or(0)] {
        roff.text([roman(*line)]);
    }
    roff.control("fi", []);
    roff
}
