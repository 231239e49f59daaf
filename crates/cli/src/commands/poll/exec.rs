//! The program that is run when the job is done.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use app::poll::{self, PollSummary};

use crate::commands::Failure;
use crate::commands::stopping::Signals;
use crate::exit::Exit;

/// A program with its arguments; no shell is involved.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Finds the program before anything is sent, so that a wrong name does not show after hours.
    pub(super) fn find(name: &OsStr, arguments: &[OsString]) -> anyhow::Result<Self> {
        let has_folder = Path::new(name).components().count() > 1;
        let path = match has_folder {
            true => Some(PathBuf::from(name)).filter(|path| path.is_file()),
            false => {
                let folders = env::var_os("PATH").unwrap_or_default();
                let mut paths = env::split_paths(&folders).map(|folder| folder.join(name));
                paths.find(|path| path.is_file())
            }
        };
        let shown = name.to_string_lossy();
        let path =
            path.ok_or_else(|| anyhow!("`--exec` is `{shown}`, expected a program that exists"))?;
        Ok(Self {
            path,
            arguments: arguments.to_vec(),
        })
    }

    /// Runs it with the last response on stdin; the exit code, if it has one. A second signal ends it.
    pub(super) async fn run(
        &self,
        summary: &PollSummary,
        signals: &mut Signals,
    ) -> Result<Option<i32>, Failure> {
        let body = summary.last.as_ref().map(|response| response.body.clone());
        let body = body.unwrap_or_default();
        let second_signal = async {
            signals.next().await;
            signals.next().await
        };
        tokio::select! {
            status = poll::run_program(&self.path, &self.arguments, &body) => {
                let status = status.with_context(|| format!("cannot run `{}`", self.path.display()));
                let status = status.map_err(|error| Failure::new(Exit::Failed, error))?;
                Ok(status.code())
            }
            _ = second_signal => Err(Failure::silent(Exit::Interrupted)),
        }
    }
}
