//! Errors in what was typed, in our words: the value, what was expected, and a hint.

use std::io;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use policy::suggest::suggestion;

use crate::args::Args;
use crate::exit::Exit;
use crate::output;

/// Prints what the parser found: help and version to stdout, errors to stderr.
pub(crate) fn report(error: &clap::Error) -> Exit {
    if let Some(message) = message(error) {
        output::print_line(&format!("error: {message}"));
        output::print_line(&format!("hint: {}", hint(error)));
        return Exit::Usage;
    }
    match output::help(error) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::Failed,
        _ if error.use_stderr() => Exit::Usage,
        _ => Exit::Done,
    }
}

/// The error in one line; `None` for help, and for errors that clap explains better.
fn message(error: &clap::Error) -> Option<String> {
    let text = |kind| text(error, kind);
    let argument = || text(ContextKind::InvalidArg).map(|argument| name(&argument));
    let value = text(ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let expected = expected(error);
            match value.filter(|value| !value.is_empty()) {
                Some(value) => Some(format!("`{}` is `{value}`, {expected}", argument()?)),
                None => Some(format!("`{}` has no value, {expected}", argument()?)),
            }
        }
        ErrorKind::UnknownArgument => Some(format!(
            "`{}` takes no argument `{}`",
            command(),
            text(ContextKind::InvalidArg)?
        )),
        ErrorKind::InvalidSubcommand => Some(format!(
            "`{}` has no command `{}`",
            command(),
            text(ContextKind::InvalidSubcommand)?
        )),
        ErrorKind::MissingRequiredArgument => {
            let missing = list(error, ContextKind::InvalidArg);
            Some(format!("`{}` needs {}", command(), quoted(&missing)))
        }
        ErrorKind::ArgumentConflict => {
            let others = list(error, ContextKind::PriorArg);
            let others: Vec<String> = others.iter().map(|other| name(other)).collect();
            match (argument()?, quoted(&others)) {
                (flag, others) if others == format!("`{flag}`") => {
                    Some(format!("`{flag}` is given twice, expected once"))
                }
                (flag, others) => Some(format!("`{flag}` cannot be used with {others}")),
            }
        }
        ErrorKind::InvalidUtf8 => Some("an argument is not UTF-8".to_owned()),
        _ => None,
    }
}

/// What a value should have been.
fn expected(error: &clap::Error) -> String {
    let values = list(error, ContextKind::ValidValue);
    if !values.is_empty() {
        return match values.as_slice() {
            [only] => format!("expected `{only}`"),
            several => format!("expected one of {}", quoted(several)),
        };
    }
    match std::error::Error::source(error) {
        Some(expected) => format!("expected {expected}"),
        None => "expected one".to_owned(),
    }
}

fn hint(error: &clap::Error) -> String {
    let help = format!("{} --help", command());
    match close(error) {
        Some(close) => format!("did you mean `{close}`? `{help}` shows all"),
        None => format!("`{help}` shows what it takes"),
    }
}

/// What may have been meant. Clap finds it for options and commands, but not always the closest
/// first; for values it looks at some kinds only.
fn close(error: &clap::Error) -> Option<String> {
    let pairs = [
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
        (ContextKind::InvalidValue, ContextKind::ValidValue),
    ];
    pairs.into_iter().find_map(|(wrong, close)| {
        let (wrong, close) = (text(error, wrong)?, list(error, close));
        let names: Vec<&str> = close.iter().map(String::as_str).collect();
        suggestion(&wrong, &names).map(str::to_owned)
    })
}

/// The command that was typed, such as `tidegate pools add`; errors do not carry it.
fn command() -> String {
    let mut command = Args::command();
    let mut name = command.get_name().to_owned();
    for word in std::env::args().skip(1) {
        if let Some(found) = command.find_subcommand(&word) {
            name.push_str(&format!(" {word}"));
            command = found.clone();
        }
    }
    name
}

/// An argument without its value: `--seed` of `--seed <N>`.
fn name(argument: &str) -> String {
    let flag = argument.split_whitespace().next().unwrap_or_default();
    match flag.starts_with('-') {
        true => flag.trim_end_matches("...").to_owned(),
        false => argument
            .trim_end_matches("...")
            .trim_matches(['<', '>', '[', ']'])
            .to_owned(),
    }
}

fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        _ => None,
    }
}

fn list(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}
