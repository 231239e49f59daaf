//! The journal of a run: an append-only file that a later run continues.
//!
//! JSON lines. The first names the command and the rules; each further one is an attempt that
//! started or ended. A start is written before the process exists, and an end is synced to the disk
//! before its slot is used again, so at most `-j` items are in progress at any kill, and only those
//! can run twice. Items match by text and occurrence: the second `a` of a list is another item than
//! the first.
//!
//! A last line that is incomplete, as a crash leaves it, is cut off. Anything else that cannot be
//! read is an error. While a run uses the file, it holds a lock on it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use policy::failure_queue::{FailureQueue, FailureQueueSettings, PacerRecord};
use policy::key::normalize;
use policy::rules::Class;
use policy::time::{Timestamp, WallTime};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::RunError;
use super::engine::MAX_SITES;
use super::event::{FailReason, FailedItem, ItemResult};
use super::item::Item;

/// A journal that this run writes.
#[derive(Debug)]
pub(super) struct Journal {
    file: Arc<File>,
    /// `None` when it is dropped.
    syncs: Option<mpsc::Sender<Synced>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Journal {
    /// Waits for the last sync, after which the lock is free.
    fn drop(&mut self) {
        self.syncs = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            _ = thread.join();
        }
    }
}

type Synced = oneshot::Sender<io::Result<()>>;

/// What earlier runs wrote.
#[derive(Debug, Default)]
pub(super) struct Past {
    items: HashMap<Digest, PastItem>,
    /// Items that succeeded.
    pub(super) done: u64,
    /// Items that failed for good.
    pub(super) failed: Vec<FailedItem>,
    /// Failures and the last end of each site; the empty name is that of a run with one gap.
    pub(super) paces: BTreeMap<String, PacerRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PastItem {
    /// It never runs again.
    Finished,
    /// It has had so many attempts.
    Attempts(u32),
}

/// What an item is known by: its text and occurrence.
type Digest = [u8; 16];

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// The version of the format.
    journal: u32,
    at_ms: i64,
    command: Vec<String>,
    rules: String,
}

const VERSION: u32 = 1;

/// Any other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Entry<'e> {
    Started {
        at_ms: i64,
        item: Cow<'e, str>,
        occurrence: u32,
        attempt: u32,
    },
    Ended {
        at_ms: i64,
        item: Cow<'e, str>,
        occurrence: u32,
        attempt: u32,
        result: EntryResult,
        class: Cow<'e, str>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<FailReason>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        rule: Option<Cow<'e, str>>,
        text: Cow<'e, str>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntryResult {
    Done,
    Retry,
    Failed,
}

/// An attempt that ended, for the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedAttempt<'e> {
    pub(super) item: &'e Item,
    pub(super) result: ItemResult,
    pub(super) class: Class,
    pub(super) rule: Option<&'e str>,
    pub(super) text: &'e str,
}

impl Journal {
    /// Opens the journal at `path`, a new one if need be, and reads what is in it.
    pub(super) fn open(
        path: &Path,
        command: Vec<String>,
        rules: &str,
        settings: &FailureQueueSettings,
        is_per_host: bool,
        now: WallTime,
    ) -> Result<(Self, Past), RunError> {
        let name = || path.display().to_string();
        let error = |source| RunError::Journal {
            path: name(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RunError::JournalInUse(name())),
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
        let mut reading = Reading::new(settings, is_per_host);
        let header = reading.read(&file).map_err(|problem| match problem {
            ReadProblem::Io(source) => error(source),
            ReadProblem::Damaged { line } => RunError::JournalDamaged { path: name(), line },
        })?;
        file.set_len(reading.whole).map_err(error)?;
        let ours = Header {
            journal: VERSION,
            at_ms: now.as_unix_millis(),
            command,
            rules: rules.to_owned(),
        };
        match header {
            Some(header) => header.check(&ours, &name())?,
            None => {
                let write = || {
                    write_line(&file, &ours)?;
                    file.sync_all()?;
                    // The file's name must survive, too.
                    let folder = path
                        .parent()
                        .filter(|folder| !folder.as_os_str().is_empty());
                    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
                };
                write().map_err(error)?;
            }
        }
        let past = reading.into_past(now);
        let file = Arc::new(file);
        let (syncs, requests) = mpsc::channel();
        let synced = Arc::clone(&file);
        let thread = thread::spawn(move || sync_all(&synced, &requests));
        let journal = Self {
            file,
            syncs: Some(syncs),
            thread: Some(thread),
        };
        Ok((journal, past))
    }

    /// Writes that an attempt starts now.
    pub(super) fn started(&self, item: &Item, now: WallTime) -> io::Result<()> {
        write_line(
            &self.file,
            &Entry::Started {
                at_ms: now.as_unix_millis(),
                item: Cow::Borrowed(&item.text),
                occurrence: item.occurrence,
                attempt: item.attempts + 1,
            },
        )
    }

    /// Writes that an attempt has ended. The result comes when it is on the disk.
    pub(super) fn ended(
        &self,
        ended: &EndedAttempt<'_>,
        now: WallTime,
    ) -> io::Result<oneshot::Receiver<io::Result<()>>> {
        let (result, reason) = match ended.result {
            ItemResult::Done => (EntryResult::Done, None),
            ItemResult::Retry => (EntryResult::Retry, None),
            ItemResult::Failed(reason) => (EntryResult::Failed, Some(reason)),
        };
        write_line(
            &self.file,
            &Entry::Ended {
                at_ms: now.as_unix_millis(),
                item: Cow::Borrowed(&ended.item.text),
                occurrence: ended.item.occurrence,
                attempt: ended.item.attempts,
                result,
                class: Cow::Borrowed(ended.class.as_str()),
                reason,
                rule: ended.rule.map(Cow::Borrowed),
                text: Cow::Borrowed(ended.text),
            },
        )?;
        let (synced, receiver) = oneshot::channel();
        let sent = self.syncs.as_ref().map(|syncs| syncs.send(synced));
        if !matches!(sent, Some(Ok(()))) {
            return Err(io::Error::other(
                "the thread that syncs the journal has ended",
            ));
        }
        Ok(receiver)
    }
}

/// One call for the whole line, so that a crash leaves at most the last line incomplete.
fn write_line(mut file: &File, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

/// Syncs the file, once for all requests that have come meanwhile.
fn sync_all(file: &File, requests: &mpsc::Receiver<Synced>) {
    while let Ok(first) = requests.recv() {
        let waiting: Vec<Synced> = std::iter::once(first).chain(requests.try_iter()).collect();
        let result = file.sync_data();
        for synced in waiting {
            let result = match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            // A run that was told to quit does not wait.
            _ = synced.send(result);
        }
    }
}

impl Header {
    fn check(&self, ours: &Self, path: &str) -> Result<(), RunError> {
        let other = |what, theirs: String, ours: String| {
            Err(RunError::OtherJournal {
                path: path.to_owned(),
                what,
                theirs,
                ours,
            })
        };
        if self.command != ours.command {
            return other("command", self.command.join(" "), ours.command.join(" "));
        }
        if self.rules != ours.rules {
            return other("rules", self.rules.clone(), ours.rules.clone());
        }
        if self.journal != ours.journal {
            let (theirs, ours) = (self.journal.to_string(), ours.journal.to_string());
            return other("version", theirs, ours);
        }
        Ok(())
    }
}

impl Past {
    /// What is known about an item; `None` if it has never started.
    pub(super) fn find(&self, text: &str, occurrence: u32) -> Option<PastItem> {
        match self.items.is_empty() {
            true => None,
            false => self.items.get(&digest(text, occurrence)).copied(),
        }
    }

    /// How many items have started.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }
}

fn digest(text: &str, occurrence: u32) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(&occurrence.to_le_bytes());
    context.update(text.as_bytes());
    let mut digest = Digest::default();
    digest.copy_from_slice(&context.finish().as_ref()[..16]);
    digest
}

/// What has been read of a journal.
struct Reading<'s> {
    settings: &'s FailureQueueSettings,
    is_per_host: bool,
    past: Past,
    sites: BTreeMap<String, PastSite>,
    /// The length of the lines that are complete.
    whole: u64,
}

#[derive(Default)]
struct PastSite {
    queue: FailureQueue,
    last: Timestamp,
}

enum ReadProblem {
    Io(io::Error),
    Damaged { line: usize },
}

impl<'s> Reading<'s> {
    fn new(settings: &'s FailureQueueSettings, is_per_host: bool) -> Self {
        Self {
            settings,
            is_per_host,
            past: Past::default(),
            sites: BTreeMap::new(),
            whole: 0,
        }
    }

    /// Reads everything; the header is missing in a new journal.
    fn read(&mut self, file: &File) -> Result<Option<Header>, ReadProblem> {
        let mut reader = BufReader::with_capacity(64 << 10, file);
        let mut header = None;
        let mut bytes = Vec::new();
        let mut damaged = None;
        for line in 1.. {
            bytes.clear();
            let length = reader
                .read_until(b'\n', &mut bytes)
                .map_err(ReadProblem::Io)?;
            if length == 0 {
                break;
            }
            // Only the last line may be incomplete.
            if let Some(line) = damaged {
                return Err(ReadProblem::Damaged { line });
            }
            let is_read = bytes.ends_with(b"\n")
                && match line {
                    1 => {
                        header = serde_json::from_slice(&bytes).ok();
                        header.is_some()
                    }
                    _ => self.entry(&bytes),
                };
            match is_read {
                true => self.whole += length as u64,
                false if line == 1 && bytes.ends_with(b"\n") => {
                    return Err(ReadProblem::Damaged { line });
                }
                false => damaged = Some(line),
            }
        }
        Ok(header)
    }

    /// Takes in one line. Can it be read?
    fn entry(&mut self, bytes: &[u8]) -> bool {
        match serde_json::from_slice(bytes) {
            Ok(Entry::Started {
                at_ms,
                item,
                occurrence,
                ..
            }) => {
                let past = self.past.items.entry(digest(&item, occurrence));
                past.or_insert(PastItem::Attempts(0));
                self.site(&item).at(at_ms);
                true
            }
            Ok(Entry::Ended {
                at_ms,
                item,
                occurrence,
                attempt,
                result,
                class,
                reason,
                rule,
                text,
            }) => {
                let past = match result {
                    EntryResult::Done | EntryResult::Failed => PastItem::Finished,
                    EntryResult::Retry => PastItem::Attempts(attempt),
                };
                self.past.items.insert(digest(&item, occurrence), past);
                let settings = self.settings;
                let site = self.site(&item);
                let now = site.at(at_ms);
                match &*class {
                    "success" => site.queue.succeeded(settings, now),
                    "retryable" | "bot_check" => site.queue.failed(settings, now),
                    _ => {}
                }
                match result {
                    EntryResult::Done => self.past.done += 1,
                    EntryResult::Retry => {}
                    EntryResult::Failed => self.past.failed.push(FailedItem {
                        item: (*item).into(),
                        reason: reason.unwrap_or(FailReason::Exhausted),
                        attempts: attempt,
                        rule: rule.map(Cow::into_owned),
                        text: text.into_owned(),
                    }),
                }
                true
            }
            Err(_) => false,
        }
    }

    fn site(&mut self, item: &str) -> &mut PastSite {
        let key = match self.is_per_host {
            true => normalize(item).unwrap_or_default(),
            false => String::new(),
        };
        if self.sites.len() > MAX_SITES && !self.sites.contains_key(&key) {
            // The one that was used least recently begins anew.
            let oldest = self.sites.iter().min_by_key(|(_, site)| site.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.sites.remove(&oldest);
            }
        }
        self.sites.entry(key).or_default()
    }

    fn into_past(self, now: WallTime) -> Past {
        let Self {
            settings,
            sites,
            mut past,
            ..
        } = self;
        let now = timestamp(now.as_unix_millis());
        past.paces = sites
            .into_iter()
            .map(|(key, site)| {
                // A wall clock that was set back: nothing is older than it was at the last end.
                let now = now.max(site.last);
                let record = PacerRecord {
                    failures: site.queue.ages(settings, now).collect(),
                    last: Some(now.since(site.last)),
                };
                (key, record)
            })
            .collect();
        past
    }
}

impl PastSite {
    /// Something happened; returns when, in the order of the file.
    fn at(&mut self, at_ms: i64) -> Timestamp {
        self.last = self.last.max(timestamp(at_ms));
        self.last
    }
}

/// Calendar time on the axis of the failure queue.
fn timestamp(at_ms: i64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(u64::try_from(at_ms).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Folder {
        folder: tempfile::TempDir,
        settings: FailureQueueSettings,
    }

    impl Folder {
        fn new() -> Self {
            Self {
                folder: tempfile::tempdir().unwrap(),
                settings: FailureQueueSettings::default(),
            }
        }

        fn path(&self) -> std::path::PathBuf {
            self.folder.path().join("journal")
        }

        fn open(&self, seconds: i64) -> Result<(Journal, Past), RunError> {
            let command = vec!["echo".to_owned(), "{}".to_owned()];
            let now = WallTime::from_unix_millis(seconds * 1000);
            Journal::open(&self.path(), command, "", &self.settings, false, now)
        }
    }

    fn item(text: &str, occurrence: u32, attempts: u32) -> Item {
        Item {
            number: 1,
            occurrence,
            attempts,
            text: text.into(),
        }
    }

    fn end(journal: &Journal, item: &Item, result: ItemResult, seconds: i64) {
        let class = match result {
            ItemResult::Done => Class::Success,
            ItemResult::Retry => Class::Retryable,
            ItemResult::Failed(_) => Class::Terminal,
        };
        let ended = EndedAttempt {
            item,
            result,
            class,
            rule: None,
            text: "text",
        };
        let now = WallTime::from_unix_millis(seconds * 1000);
        let synced = journal.ended(&ended, now).unwrap();
        synced.blocking_recv().unwrap().unwrap();
    }

    #[test]
    fn items_match_by_text_and_occurrence() {
        let folder = Folder::new();
        let (journal, past) = folder.open(0).unwrap();
        assert_eq!(past.find("a", 1), None);
        let now = WallTime::from_unix_millis(1000);
        for (text, occurrence) in [("a", 1), ("a", 2), ("b", 1), ("c", 1)] {
            journal.started(&item(text, occurrence, 0), now).unwrap();
        }
        end(&journal, &item("a", 2, 1), ItemResult::Done, 2);
        end(&journal, &item("b", 1, 1), ItemResult::Retry, 3);
        let rejected = ItemResult::Failed(FailReason::Rejected);
        end(&journal, &item("c", 1, 1), rejected, 4);
        drop(journal);
        let (_journal, past) = folder.open(10).unwrap();
        assert_eq!(past.find("a", 1), Some(PastItem::Attempts(0)));
        assert_eq!(past.find("a", 2), Some(PastItem::Finished));
        assert_eq!(past.find("b", 1), Some(PastItem::Attempts(1)));
        assert_eq!(past.find("c", 1), Some(PastItem::Finished));
        assert_eq!(past.find("d", 1), None);
        assert_eq!((past.done, past.failed.len(), past.len()), (1, 1, 4));
        let pace = &past.paces[""];
        assert_eq!(pace.failures, [Duration::from_secs(7)]);
        assert_eq!(pace.last, Some(Duration::from_secs(6)));
    }

    #[test]
    fn incomplete_last_line_is_cut_off() {
        let folder = Folder::new();
        let (journal, _) = folder.open(0).unwrap();
        end(&journal, &item("a", 1, 1), ItemResult::Done, 1);
        drop(journal);
        let whole = fs::read(folder.path()).unwrap();
        for torn in [&b"{\"event\":\"ended\",\"at"[..], b"\0\0\0\n"] {
            fs::write(folder.path(), [&whole, torn].concat()).unwrap();
            let (journal, past) = folder.open(2).unwrap();
            assert_eq!(past.find("a", 1), Some(PastItem::Finished));
            drop(journal);
            assert_eq!(fs::read(folder.path()).unwrap(), whole);
        }
        // Not even the header was written.
        fs::write(folder.path(), "{\"journal\":1,").unwrap();
        assert_eq!(folder.open(3).unwrap().1.len(), 0);
    }

    #[test]
    fn damaged_line_is_an_error() {
        let folder = Folder::new();
        drop(folder.open(0).unwrap());
        let text = fs::read_to_string(folder.path()).unwrap();
        fs::write(folder.path(), format!("{text}nonsense\n{{}}\n")).unwrap();
        let error = folder.open(1).unwrap_err();
        assert!(matches!(error, RunError::JournalDamaged { line: 2, .. }));
        fs::write(folder.path(), "my shopping list\n").unwrap();
        let error = folder.open(1).unwrap_err();
        assert!(matches!(error, RunError::JournalDamaged { line: 1, .. }));
        assert_eq!(fs::read(folder.path()).unwrap(), b"my shopping list\n");
    }

    #[test]
    fn second_run_and_other_command_are_refused() {
        let folder = Folder::new();
        let (journal, _) = folder.open(0).unwrap();
        assert!(matches!(folder.open(0), Err(RunError::JournalInUse(_))));
        drop(journal);
        let other = vec!["cat".to_owned(), "{}".to_owned()];
        let now = WallTime::from_unix_millis(0);
        let error = Journal::open(&folder.path(), other, "", &folder.settings, false, now);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("another command: `echo {}`, not `cat {}`"),
            "{error}"
        );
    }
}
