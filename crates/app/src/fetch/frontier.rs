//! The URLs of a fetch: which are known, which are queued, which have ended.
//!
//! Everything is in one file that only grows, a line for each thing that happened:
//!
//! ```text
//! tidegate-fetch 1
//! Q p 0 - http://a.example/          queued: a page, 0 links away from a given URL, no source
//! Q p 1 17 http://a.example/b        queued: linked to by the page of the line at byte 17
//! D 17 {"url":"http://a.example/",…} ended: the URL of the line at byte 17, and its record
//! ```
//!
//! Memory holds eight bytes for the place of a queued URL and a 64-bit hash for a known one, so that a
//! million URLs take some 30 MB. With a state file the next run reads the lines again; without, the
//! file has no name, and what has ended is not written.
//!
//! A run that is killed loses the end of what it had not written: a torn line is cut off, and a URL
//! whose end is missing is fetched again. Links of a page are written before its end, so none is lost.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::record::UrlRecord;
use crate::temporary::temporary_file;

/// What a URL is fetched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Page,
    Sitemap,
}

/// A queued URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: EntryKind,
    /// How many links away from a given URL it is.
    pub(super) depth: u32,
    /// The place of the page that links to it.
    pub(super) source: Option<u64>,
    pub(super) url: String,
}

/// What came of adding a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is queued at this place.
    Queued(u64),
    /// It was known already.
    Known,
    /// There are as many URLs as may be.
    Full,
}

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It cannot be read or written.
    #[error("cannot use it")]
    Io(#[from] io::Error),
    /// Another fetch uses it.
    #[error("another fetch uses it")]
    InUse,
    /// It is another file.
    #[error("line {line} is not of a fetch, expected the state file of an earlier fetch")]
    Damaged {
        /// The line, counted from 1.
        line: u64,
    },
}

/// The URLs of a fetch.
#[derive(Debug)]
pub(super) struct Frontier {
    file: File,
    /// Whether it is read by a later run.
    is_kept: bool,
    /// How much of the file is written.
    written: u64,
    unwritten: Vec<u8>,
    /// The part of the file that was read last, for URLs are mostly read in order.
    block: Vec<u8>,
    block_at: u64,
    hashes: RandomState,
    known: HashSet<u64>,
    max_urls: usize,
}

/// The first line of a file.
const HEADER: &str = "tidegate-fetch 1\n";

/// What is read and written at once.
const BLOCK: usize = 64 << 10;

/// Longer than any line with a URL, of which the longest has 8 KiB.
const MAX_ENTRY: usize = 10 << 10;

impl Frontier {
    /// A frontier for at most so many URLs, in a file without a name.
    pub(super) fn temporary(max_urls: usize) -> io::Result<Self> {
        Ok(Self::new(temporary_file()?, false, max_urls))
    }

    fn new(file: File, is_kept: bool, max_urls: usize) -> Self {
        Self {
            file,
            is_kept,
            written: 0,
            unwritten: HEADER.as_bytes().to_vec(),
            block: Vec::new(),
            block_at: 0,
            hashes: RandomState::new(),
            known: HashSet::new(),
            max_urls,
        }
    }

    /// The frontier in this file, which is made if it does not exist. Calls `ended` with every URL that
    /// has ended, in order, and returns the places of those that have not.
    pub(super) fn open(
        path: &Path,
        max_urls: usize,
        mut ended: impl FnMut(&str, UrlRecord) -> io::Result<()>,
    ) -> Result<(Self, Vec<u64>), StateError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateError::InUse),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut this = Self::new(file, true, max_urls);
        let queued = this.read_all(&mut ended)?;
        Ok((this, queued))
    }

    fn read_all(
        &mut self,
        ended: &mut impl FnMut(&str, UrlRecord) -> io::Result<()>,
    ) -> Result<Vec<u64>, StateError> {
        let mut reader = BufReader::with_capacity(BLOCK, &self.file);
        let mut queued = Vec::new();
        let mut done = HashSet::new();
        let mut line = Vec::new();
        let (mut at, mut number) = (0, 0);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)? as u64;
            number += 1;
            let Some((b'\n', text)) = line.split_last() else {
                break;
            };
            let damaged = StateError::Damaged { line: number };
            let text =
                std::str::from_utf8(text).map_err(|_| StateError::Damaged { line: number })?;
            if number == 1 {
                if Some(text) != HEADER.strip_suffix('\n') {
                    return Err(damaged);
                }
            } else if let Some((place, json)) = parse_end(text) {
                let record = serde_json::from_str(json).map_err(|_| damaged)?;
                if done.insert(place) {
                    ended(json, record)?;
                }
            } else {
                let entry = parse_entry(text).ok_or(damaged)?;
                self.known.insert(self.hashes.hash_one(&entry.url));
                queued.push(at);
            }
            at += length;
        }
        drop(reader);
        queued.retain(|place| !done.contains(place));
        if at > 0 {
            self.unwritten.clear();
        } else if !line.is_empty() && !HEADER.as_bytes().starts_with(&line) {
            return Err(StateError::Damaged { line: 1 });
        }
        // A torn line, whose writing was interrupted.
        self.file.set_len(at)?;
        self.file.seek(SeekFrom::Start(at))?;
        self.written = at;
        Ok(queued)
    }

    /// Queues a URL, unless it is known.
    pub(super) fn add(&mut self, entry: &Entry) -> io::Result<Added> {
        let hash = self.hash(&entry.url);
        if self.known.contains(&hash) {
            return Ok(Added::Known);
        }
        if self.known.len() >= self.max_urls {
            return Ok(Added::Full);
        }
        self.known.insert(hash);
        let place = self.end();
        let kind = match entry.kind {
            EntryKind::Page => 'p',
            EntryKind::Sitemap => 's',
        };
        let source = entry
            .source
            .map_or_else(|| "-".to_owned(), |source| source.to_string());
        let line = format!("Q {kind} {} {source} {}\n", entry.depth, entry.url);
        self.unwritten.extend_from_slice(line.as_bytes());
        self.write_block()?;
        Ok(Added::Queued(place))
    }

    /// Notes that the URL at this place has ended.
    pub(super) fn end_of(&mut self, place: u64, record: &str) -> io::Result<()> {
        if self.is_kept {
            let line = format!("D {place} {record}\n");
            self.unwritten.extend_from_slice(line.as_bytes());
        }
        self.write_block()
    }

    /// The URL at this place.
    pub(super) fn entry(&mut self, place: u64) -> io::Result<Entry> {
        let line = match self.line(place) {
            Some(line) => line,
            None => {
                self.load(place)?;
                self.line(place).ok_or(io::ErrorKind::UnexpectedEof)?
            }
        };
        let entry = std::str::from_utf8(line).ok().and_then(parse_entry);
        entry.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// A hash by which URLs are compared.
    pub(super) fn hash(&self, url: &str) -> u64 {
        self.hashes.hash_one(url)
    }

    /// Writes everything.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.unwritten, self.written)?;
        self.written += self.unwritten.len() as u64;
        self.unwritten.clear();
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        match self.unwritten.len() > BLOCK {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn end(&self) -> u64 {
        self.written + self.unwritten.len() as u64
    }

    /// The line at this place, if it is in memory.
    fn line(&self, place: u64) -> Option<&[u8]> {
        let (bytes, start) = match place.checked_sub(self.written) {
            Some(start) => (&self.unwritten, start),
            None => (&self.block, place.checked_sub(self.block_at)?),
        };
        let bytes = bytes.get(usize::try_from(start).ok()?..)?;
        let end = memchr::memchr(b'\n', bytes)?;
        Some(&bytes[..end])
    }

    fn load(&mut self, place: u64) -> io::Result<()> {
        let length = usize::try_from(self.written - place).unwrap_or(usize::MAX);
        // What is read in order is read once; a single line is short.
        let is_next = place >= self.block_at && place - self.block_at <= 2 * BLOCK as u64;
        let length = length.min(if is_next { BLOCK } else { MAX_ENTRY });
        self.block.resize(length, 0);
        self.file.read_exact_at(&mut self.block, place)?;
        self.block_at = place;
        Ok(())
    }
}

/// The records of URLs that have ended, in order, in the state file at `path`.
pub(super) fn ended(path: &Path) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let lines = BufReader::with_capacity(BLOCK, File::open(path)?).lines();
    Ok(lines.filter_map(|line| match line {
        Ok(line) => parse_end(&line).map(|(_, json)| Ok(json.to_owned())),
        Err(error) => Some(Err(error)),
    }))
}

fn parse_entry(line: &str) -> Option<Entry> {
    let mut words = line.strip_prefix("Q ")?.splitn(4, ' ');
    let kind = match words.next()? {
        "p" => EntryKind::Page,
        "s" => EntryKind::Sitemap,
        _ => return None,
    };
    let depth = words.next()?.parse().ok()?;
    let source = match words.next()? {
        "-" => None,
        place => Some(place.parse().ok()?),
    };
    let url = words.next()?.to_owned();
    Some(Entry {
        kind,
        depth,
        source,
        url,
    })
}

fn parse_end(line: &str) -> Option<(u64, &str)> {
    let (place, json) = line.strip_prefix("D ")?.split_once(' ')?;
    Some((place.parse().ok()?, json))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str) -> Entry {
        Entry {
            kind: EntryKind::Page,
            depth: 0,
            source: None,
            url: url.to_owned(),
        }
    }

    fn add(frontier: &mut Frontier, url: &str) -> u64 {
        match frontier.add(&entry(url)).unwrap() {
            Added::Queued(place) => place,
            other => panic!("{url}: {other:?}"),
        }
    }

    fn end(frontier: &mut Frontier, place: u64, url: &str) {
        let record = UrlRecord {
            url: url.to_owned(),
            ..UrlRecord::default()
        };
        let json = serde_json::to_string(&record).unwrap();
        frontier.end_of(place, &json).unwrap();
    }

    fn open(path: &Path) -> (Frontier, Vec<u64>, Vec<String>) {
        let mut ended = Vec::new();
        let (frontier, queued) = Frontier::open(path, 1000, |_, record| {
            ended.push(record.url);
            Ok(())
        })
        .unwrap();
        (frontier, queued, ended)
    }

    #[test]
    fn returns_entries_by_their_places_in_any_order() {
        let mut frontier = Frontier::temporary(10_000).unwrap();
        let entries: Vec<_> = (0..5000)
            .map(|number| Entry {
                kind: if number % 7 == 0 {
                    EntryKind::Sitemap
                } else {
                    EntryKind::Page
                },
                depth: number % 5,
                source: (number % 3 == 0).then_some(u64::from(number)),
                url: format!(
                    "http://a.example/{number}?{}",
                    "x".repeat(number as usize % 90)
                ),
            })
            .collect();
        let mut places = Vec::new();
        for entry in &entries {
            let Added::Queued(place) = frontier.add(entry).unwrap() else {
                panic!("{entry:?}");
            };
            places.push(place);
        }
        for index in (0..5000)
            .chain((0..5000).rev())
            .chain((0..5000).map(|n| n * 7 % 5000))
        {
            assert_eq!(frontier.entry(places[index]).unwrap(), entries[index]);
        }
    }

    #[test]
    fn queues_a_url_once_and_only_so_many() {
        let mut frontier = Frontier::temporary(2).unwrap();
        add(&mut frontier, "http://a.example/");
        assert_eq!(
            frontier.add(&entry("http://a.example/")).unwrap(),
            Added::Known
        );
        add(&mut frontier, "http://b.example/");
        assert_eq!(
            frontier.add(&entry("http://c.example/")).unwrap(),
            Added::Full
        );
        assert_eq!(
            frontier.add(&entry("http://b.example/")).unwrap(),
            Added::Known
        );
    }

    #[test]
    fn goes_on_after_the_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let urls = [
            "http://a.example/",
            "http://b.example/",
            "http://c.example/",
        ];
        {
            let (mut frontier, queued, _) = open(&path);
            assert!(queued.is_empty());
            let places = urls.map(|url| add(&mut frontier, url));
            end(&mut frontier, places[1], urls[1]);
            end(&mut frontier, places[0], urls[0]);
            frontier.flush().unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut frontier, queued, ended) = open(&path);
            let left: Vec<_> = queued
                .iter()
                .map(|&place| frontier.entry(place).unwrap().url)
                .collect();
            let known = left.len() + ended.len();
            assert_eq!(
                left.iter().chain(&ended).collect::<HashSet<_>>().len(),
                known
            );
            for url in &urls[known..] {
                add(&mut frontier, url);
            }
            frontier.flush().unwrap();
            drop(frontier);
            let (_, queued, again) = open(&path);
            assert_eq!(again, ended);
            assert_eq!(queued.len() + again.len(), 3, "cut at {length}");
        }
    }

    #[test]
    fn refuses_a_file_in_use_and_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let refused = || {
            Frontier::open(&path, 1, |_, _| Ok(()))
                .unwrap_err()
                .to_string()
        };
        let held = open(&path);
        assert_eq!(refused(), "another fetch uses it");
        drop(held);
        for other in [
            "x",
            "Q p 0 - http://a.example/\n",
            "tidegate-fetch 1\nhello\n",
        ] {
            std::fs::write(&path, other).unwrap();
            assert!(refused().contains("is not of a fetch"), "{other}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
    }
}
