//! The state of a job that any of several servers may go on with.
//!
//! The file in the folder of the job is the one that is used; what is appended to it is copied to the
//! database about once a second. It only grows, and every line of it is whole: a server that has the
//! beginning of it goes on from there, and fetches again what is missing. So the copy need not be
//! complete, and it ends at [`MAX_COPIED`].

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use store::StoreError;
use store::jobs::{ClaimedJob, JobClaim, JobFiles};

use super::folder::JobFolder;

/// 64 MiB: about 150,000 URLs. The database holds it until the job ends.
const MAX_COPIED: u64 = 64 << 20;

/// As much is copied by one call.
const PART: usize = 1 << 20;

/// Copies the state of a job that runs here.
#[derive(Debug)]
pub(super) struct StateCopier {
    files: Arc<dyn JobFiles>,
    folder: JobFolder,
    claim: JobClaim,
    /// How much is in the database.
    copied: Cell<u64>,
}

/// Why there is no state to go on from.
#[derive(Debug)]
pub(super) enum StateProblem {
    /// The database does not answer. The job can be tried again.
    Store,
    /// It cannot be read, or not be written to the folder. The text is for people.
    Unusable(String),
}

impl From<StoreError> for StateProblem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Sealed { .. } | StoreError::Unreadable { .. } => {
                Self::Unusable(error.to_string().replace("\nhint: ", "; "))
            }
            _ => Self::Store,
        }
    }
}

impl From<io::Error> for StateProblem {
    fn from(error: io::Error) -> Self {
        Self::Unusable(format!("the folder of the job cannot be written: {error}"))
    }
}

impl StateCopier {
    /// Makes the state in the folder the one to go on from: that of this server if it has run the job last,
    /// else the copy.
    pub(super) async fn restore(
        files: Arc<dyn JobFiles>,
        folder: JobFolder,
        claimed: &ClaimedJob,
    ) -> Result<Self, StateProblem> {
        let copy = claimed.copy;
        folder.create()?;
        if !copy.is_own || folder.state_length() < copy.length {
            let number = claimed.job.number;
            folder.replace_state(&[])?;
            let mut at = 0;
            while let Some(part) = files.part(number, at).await? {
                folder.append_state(&part)?;
                at += part.len() as u64;
            }
        }
        Ok(Self {
            files,
            folder,
            claim: claimed.job.last_claim(),
            copied: Cell::new(copy.length),
        })
    }

    /// Copies what was appended since the last time. What fails is copied the next time.
    pub(super) async fn copy(&self) {
        while self.copied.get() < MAX_COPIED {
            let Ok(bytes) = self.folder.read_state(self.copied.get(), PART) else {
                return;
            };
            if bytes.is_empty() {
                return;
            }
            match self
                .files
                .append(self.claim, self.copied.get(), bytes)
                .await
            {
                Ok(Some(length)) => self.copied.set(length),
                Ok(None) | Err(_) => return,
            }
        }
    }
}
