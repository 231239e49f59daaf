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
    /// The breaker of the upstream's gate refused.
    BreakerOpen,
    /// It gave up while the upstream throttled, or its time was over.
    GaveUp,
    /// Ended by Ctrl-C, after the requests in flight. Commands without any are killed by the signal
    /// itself, for which shells report the same number.
    Interrupted,
}

impl Exit {
    const ALL: [Self; 6] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::BreakerOpen,
        Self::GaveUp,
        Self::Interrupted,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::BreakerOpen => 69,
            Self::GaveUp => 75,
            Self::Interrupted => 130,
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "something failed",
            Self::Usage => "usage or configuration, or a bad line of input",
            Self::BreakerOpen => "refused by the breaker of the upstream",
            Self::GaveUp => "gave up while throttled, or out of time",
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
