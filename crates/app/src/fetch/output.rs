//! Records of URLs that have ended: counted, written, and put into the report.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::FetchError;
use super::frontier::Frontier;
use super::jsonl::Jsonl;
use super::plan::RecordObserver;
use super::progress::FetchCounts;
use super::record::{UrlError, UrlRecord};
use super::report::ReportBuilder;

/// Where records go.
pub(super) struct Output {
    pub(super) counts: FetchCounts,
    pub(super) errors: BTreeMap<UrlError, u64>,
    /// The highest share of done in known so far.
    share: f64,
    pub(super) lines: Option<Jsonl>,
    /// Shared with the listener for events of gates.
    pub(super) report: Option<Arc<Mutex<ReportBuilder>>>,
    /// URLs that failed, for the sources of broken links.
    pub(super) failed: Vec<String>,
    pub(super) observer: Option<RecordObserver>,
    /// Lines that wait until the state is written.
    unwritten: Vec<u8>,
}

/// Lines that are written at once.
const BLOCK: usize = 64 << 10;

/// As many broken links as have their sources looked up.
const MAX_FAILED: usize = 10_000;

impl Output {
    pub(super) fn new(
        report: Option<Arc<Mutex<ReportBuilder>>>,
        observer: Option<RecordObserver>,
    ) -> Self {
        Self {
            counts: FetchCounts::default(),
            errors: BTreeMap::new(),
            share: 0.0,
            lines: None,
            report,
            failed: Vec::new(),
            observer,
            unwritten: Vec::new(),
        }
    }

    /// The highest share of done in known so far.
    pub(super) fn share(&mut self) -> f64 {
        let FetchCounts { known, done, .. } = self.counts;
        if known > 0 {
            self.share = self.share.max(done as f64 / known as f64);
        }
        self.share
    }

    /// A further URL is known.
    pub(super) fn known(&mut self) {
        self.counts.known += 1;
    }

    /// Takes the record of the URL at this place.
    pub(super) fn record(
        &mut self,
        frontier: &mut Frontier,
        place: u64,
        record: UrlRecord,
        key: &str,
    ) -> Result<(), FetchError> {
        // A record is plain data.
        let json =
            serde_json::to_string(&record).map_err(|error| FetchError::Queue(error.into()))?;
        frontier.end_of(place, &json).map_err(FetchError::Queue)?;
        if self.lines.is_some() {
            self.unwritten.extend_from_slice(json.as_bytes());
            self.unwritten.push(b'\n');
        }
        self.count(&record, key, false);
        if let Some(observer) = &mut self.observer {
            observer(&record);
        }
        match self.unwritten.len() > BLOCK {
            true => self.flush(frontier),
            false => Ok(()),
        }
    }

    /// Counts a record, of this run or of an earlier one.
    pub(super) fn count(&mut self, record: &UrlRecord, key: &str, is_earlier: bool) {
        let counts = &mut self.counts;
        counts.done += 1;
        counts.bytes += record.bytes;
        counts.not_modified += u64::from(record.not_modified);
        if let Some(error) = record.error {
            counts.failed += 1;
            counts.denied += u64::from(error == UrlError::RobotsDenied);
            *self.errors.entry(error).or_default() += 1;
            if self.report.is_some() && self.failed.len() < MAX_FAILED {
                self.failed.push(record.url.clone());
            }
        }
        if let Some(report) = &self.report {
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.add(record, key, is_earlier);
        }
    }

    /// Writes everything: the state first, so that no line is ahead of it.
    pub(super) fn flush(&mut self, frontier: &mut Frontier) -> Result<(), FetchError> {
        frontier.flush().map_err(FetchError::Queue)?;
        if let Some(lines) = &mut self.lines {
            lines
                .write_lines(&self.unwritten)
                .map_err(FetchError::Lines)?;
            self.unwritten.clear();
        }
        Ok(())
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
