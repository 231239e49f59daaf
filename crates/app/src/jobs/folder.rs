//! The folder of a job: what it needs to continue, and its report.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{ReportFormat, StoredReport};
use crate::fetch::Report;

/// The folder of one job. It may not be there yet, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobFolder {
    path: PathBuf,
}

const JSON: &str = "report.json";
const HTML: &str = "report.html";
const POLICY: &str = "report.csp";

impl JobFolder {
    /// The folder of the job `id` in a data folder. Ids are made here, of letters and digits.
    pub(super) fn new(data: &Path, id: &str) -> Self {
        Self {
            path: data.join("jobs").join(id),
        }
    }

    /// Makes it, readable by its owner only.
    pub(super) fn create(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.path)
    }

    /// From which an interrupted job continues.
    pub(super) fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Stores a report durably. `links` are shown beside the heading of its page.
    pub(super) fn write_report(&self, report: &Report, links: &[(&str, &str)]) -> io::Result<()> {
        let policy = Report::content_security_policy();
        self.write(JSON, &serde_json::to_vec(report)?)?;
        self.write(HTML, report.to_html_with_links(links).as_bytes())?;
        self.write(
            POLICY,
            format!("{policy}; frame-ancestors 'none'").as_bytes(),
        )?;
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
