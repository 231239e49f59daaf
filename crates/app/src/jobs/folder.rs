//! The folder of a job: what it needs to continue, and its report.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{ReportFormat, StoredReport};
use crate::fetch::Report;

/// The folder of one job. It may not be there yet, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobFolder {
    path: PathBuf,
}

const STATE: &str = "state";
const JSON: &str = "report.json";
const HTML: &str = "report.html";
const POLICY: &str = "report.csp";

impl JobFolder {
    /// The folder of the job `id` among those of other jobs. Ids are made here, of letters and digits.
    pub(super) fn new(folders: &Path, id: &str) -> Self {
        Self {
            path: folders.join(id),
        }
    }

    /// Makes it, readable by its owner only.
    pub(super) fn create(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.path)
    }

    /// From which an interrupted job continues.
    pub(super) fn state(&self) -> PathBuf {
        self.path.join(STATE)
    }

    /// How long the state is; nothing if there is none.
    pub(super) fn state_length(&self) -> u64 {
        fs::metadata(self.state()).map_or(0, |file| file.len())
    }

    /// Replaces the state by another one, whose first bytes these are. Links between pages name places in
    /// the old one.
    pub(super) fn replace_state(&self, bytes: &[u8]) -> io::Result<()> {
        match fs::remove_file(crate::fetch::links_path(&self.state())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.write(STATE, bytes),
        }
    }

    /// Appends to the state.
    pub(super) fn append_state(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(self.state())?;
        file.write_all(bytes)
    }

    /// Whole lines of the state from `at` on, `most` bytes at most.
    pub(super) fn read_state(&self, at: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(self.state())?;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes)?;
        let end = memchr::memrchr(b'\n', &bytes).map_or(0, |last| last + 1);
        bytes.truncate(end);
        Ok(bytes)
    }

    /// Stores a report durably. `links` are shown beside the heading of its page.
    pub(super) fn write_report(&self, report: &Report, links: &[(&str, &str)]) -> io::Result<()> {
        self.write(JSON, &serde_json::to_vec(report)?)?;
        self.write(HTML, report.to_html_with_links(links).as_bytes())?;
        self.write(POLICY, page_policy().as_bytes())?;
        fs::File::open(&self.path)?.sync_all()
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(self.path.join(name))?;
        file.write_all(content)?;
        file.sync_all()
    }

    /// Reads a report. The policy of a page is stored with it, because it names the script of the
    /// page, which a later version may have changed.
    pub(super) fn read_report(&self, format: ReportFormat) -> io::Result<StoredReport> {
        let read = |name| fs::read(self.path.join(name));
        Ok(match format {
            ReportFormat::Json => StoredReport {
                content: read(JSON)?,
                content_security_policy: None,
            },
            ReportFormat::Html => StoredReport {
                content: read(HTML)?,
                content_security_policy: String::from_utf8(read(POLICY)?).ok(),
            },
        })
    }

    /// Deletes everything but the report.
    pub(super) fn delete_state(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            match entry.file_type()?.is_dir() {
                _ if [JSON, HTML, POLICY].iter().any(|report| name == *report) => {}
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }

    /// Deletes it with all that is in it. One that is not there is no error.
    pub(super) fn delete(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// What a browser may do with a page.
pub(super) fn page_policy() -> String {
    let policy = Report::content_security_policy();
    format!("{policy}; frame-ancestors 'none'")
}

/// The ids of jobs with a folder.
pub(super) fn ids(folders: &Path) -> Vec<String> {
    let entries = fs::read_dir(folders).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string());
    names.filter_map(Result::ok).collect()
}
