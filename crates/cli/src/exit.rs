//! Exit codes.

use std::process::ExitCode;

/// How a command ended. The numbers are stable: scripts test them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything succeeded.
    Done,
    /// Something failed.
    Failed,
    /// The arguments, the configuration or the input are wrong: trying again does not help.
    Usage,
    /// There was no success for too long.
    GaveUp,
    /// Ended by Ctrl-C, after the requests in flight. Commands without any are killed by the signal
    /// itself, for which shells report the same number.
    Interrupted,
}

impl Exit {
    const ALL: [Self; 5] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::GaveUp,
        Self::Interrupted,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::GaveUp => 75,
            Self::Interrupted => 130,
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "something failed",
            Self::Usage => "usage or configuration, or a bad line of input",
            Self::GaveUp => "gave up: no success for too long",
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
