//! What the exit code says.

use std::process::ExitCode;

/// How the command ended. The numbers are part of the contract: scripts test them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done.
    Done,
    /// Something failed on the way.
    Failed,
    /// What was typed, or what was given to read, is not right: trying again will not help.
    Usage,
    /// Ended by Ctrl-C, after what was in flight. Commands that have nothing to finish are ended by
    /// the signal itself, and this is the number that shells make of it.
    Interrupted,
}

impl Exit {
    const ALL: [Self; 4] = [Self::Done, Self::Failed, Self::Usage, Self::Interrupted];

    const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "something failed",
            Self::Usage => "usage or configuration, or a bad line of input",
            Self::Interrupted => "interrupted",
        }
    }

    /// All codes and their meanings, for `--help`.
    pub(crate) fn table() -> String {
        let mut table = "Exit codes:".to_owned();
        for exit in Self::ALL {
            table.push_str(&format!("\n  {:>3}  {}", exit.code(), exit.meaning()));
        }
        table
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
