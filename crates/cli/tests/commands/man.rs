//! `tidegate man`: pages for every command, which `man` can show.

use std::collections::BTreeSet;
use std::fs;

use insta::assert_snapshot;

use crate::support::{output, run, shown, tidegate};

#[test]
fn man_writes_a_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("man1");
    let output = tidegate("man --out").arg(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let pages = fs::read_dir(&folder).unwrap();
    let names = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = names.collect();
    let mut expected = BTreeSet::new();
    add_pages("", &mut expected);
    assert_eq!(pages, expected);
    for page in &pages {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        for section in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES"] {
            let is_part_of = page.matches('-').count() > 1 && section == ".SH EXAMPLES";
            assert!(
                text.contains(section) || is_part_of,
                "{page} has no {section}"
            );
        }
    }
}

/// The names of the pages of a command and of those below it, as its help lists them.
fn add_pages(command: &str, pages: &mut BTreeSet<String>) {
    pages.insert(format!(
        "{}.1",
        format!("tidegate {command}").trim().replace(' ', "-")
    ));
    let help = output(&format!("{command} -h"), b"");
    let help = String::from_utf8(help.stdout).unwrap();
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return;
    };
    let list = list.split("\n\n").next().unwrap();
    let is_name = |line: &&str| !line.starts_with("   ");
    let names = list
        .lines()
        .filter(is_name)
        .filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        add_pages(format!("{command} {name}").trim(), pages);
    }
}

#[test]
fn man_prints_one_page_with_notes_as_they_are_written() {
    let page = String::from_utf8(output("man health", b"").stdout).unwrap();
    let title = format!(
        ".TH tidegate-health 1 \"\" \"tidegate {}\" Tidegate\n",
        env!("CARGO_PKG_VERSION")
    );
    assert!(page.starts_with(&title), "{page}");
    let (_, notes) = page.split_once(".SH EXAMPLES\n").unwrap();
    assert_snapshot!(notes, @r"
    .nf
      tidegate health
      tidegate health \-\-ready \-\-server http://127.0.0.1:7071
    .fi
    ");
}

#[test]
fn man_rejects_an_unknown_command() {
    assert_snapshot!(run("man ops lisst", ""), @"
    exit 2
    --- stderr
    error: `COMMAND` is `ops lisst`, expected a command
    hint: `tidegate --help` lists the commands
    ");
}
