//! The list of items, read as a stream.
//!
//! Items are lines of UTF-8 without their line end (`\n` or `\r\n`), or texts between NUL bytes;
//! empty ones are skipped. A file is read once before the start, so that a line that cannot be used
//! is reported before anything runs. Standard input cannot be read twice: there such a line becomes
//! an item that failed.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::sync::Arc;
use std::{mem, thread};

use policy::key::normalize;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::RunError;
use super::journal::{Past, PastItem};
use crate::temporary::temporary_file;

/// One item of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its place in the list, counted from 1.
    pub number: u64,
    /// Which of the equal items before and including it, counted from 1. Always 1 without a journal.
    pub occurrence: u32,
    /// Attempts that have ended.
    pub attempts: u32,
    /// The item itself.
    pub text: Box<str>,
}

/// Where items come from.
pub enum ItemSource {
    /// Given directly.
    Texts(Vec<String>),
    /// The lines of a file.
    File(PathBuf),
    /// The lines of something that is read once.
    Stream(Box<dyn Read + Send>),
}

impl fmt::Debug for ItemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Texts(texts) => f.debug_tuple("Texts").field(&texts.len()).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// How items are written, and what they may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFormat {
    /// Are items separated by NUL bytes, not by line ends?
    pub is_null_separated: bool,
    /// May an item start with `-`? The command would read it as an option.
    pub allows_dash: bool,
    /// Must each item name a server, whose gap is its own?
    pub is_per_host: bool,
}

/// An item that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadItem {
    /// The file or the source.
    pub source: String,
    /// Its place in the source, counted from 1: the line of a file.
    pub line: u64,
    /// What is wrong, with what was expected.
    pub why: String,
}

impl BadItem {
    pub(super) fn list(items: &[Self]) -> String {
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        items.join("; ")
    }
}

impl fmt::Display for BadItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, line, why } = self;
        write!(f, "{source}:{line}: {why}")
    }
}

/// As long as one argument may be on Linux, its final NUL included.
pub(super) const MAX_ITEM: usize = 128 << 10;

/// More problems of one list say nothing new.
const MAX_BAD_ITEMS: usize = 10;

impl ItemFormat {
    /// What is wrong with an item.
    fn problem(self, item: &str) -> Option<String> {
        let shown: String = item.chars().take(80).collect();
        if item.len() >= MAX_ITEM {
            return Some(format!(
                "an item of {} bytes, expected at most {}",
                item.len(),
                MAX_ITEM - 1
            ));
        }
        if item.contains('\0') {
            return Some("an item with a NUL byte, which no argument can have".to_owned());
        }
        if item.starts_with('-') && !self.allows_dash {
            return Some(format!(
                "`{shown}` starts with `-`: the command would read it as an option; \
                 `--allow-dash` allows it"
            ));
        }
        if self.is_per_host
            && let Err(error) = normalize(item)
        {
            return Some(format!(
                "`{}` has no site for `--per-host`, expected {}",
                error.value(),
                error.expected()
            ));
        }
        None
    }
}

/// An item as read, or what is wrong with it.
#[derive(Debug)]
pub(super) enum Listed {
    Item(Item),
    Bad(Item, String),
}

/// The list, read by a thread of its own as far as a few batches ahead.
#[derive(Debug)]
pub(super) struct Input {
    batches: mpsc::Receiver<Batch>,
    /// Does its end not depend on another process?
    pub(super) is_finite: bool,
}

type Batch = Result<Vec<Listed>, RunError>;

/// Items sent at once: enough to make the hand-over cheap.
const BATCH: usize = 256;

impl Input {
    /// Checks the list as far as it can be read twice, and starts to read.
    ///
    /// Items that the journal knows as finished are left out. Its items must all be in the list; to
    /// find that out before the start, a stream is read to its end if the journal has any.
    pub(super) fn open(
        sources: Vec<ItemSource>,
        format: ItemFormat,
        past: &Arc<Past>,
        has_journal: bool,
    ) -> Result<Self, RunError> {
        let mut bad = Vec::new();
        let mut is_finite = true;
        let mut known = Occurrences::default();
        let mut found = 0;
        let mut opened = Vec::new();
        for source in sources {
            let (name, file) = match source {
                ItemSource::Texts(texts) => {
                    for (text, line) in texts.iter().zip(1..) {
                        found += usize::from(known.is_in(past, text));
                        let source = ARGUMENTS.to_owned();
                        let why = format.problem(text);
                        bad.extend(why.map(|why| BadItem { source, line, why }));
                    }
                    opened.push((ARGUMENTS.to_owned(), Opened::Texts(texts)));
                    continue;
                }
                ItemSource::Stream(reader) => {
                    let name = "stdin".to_owned();
                    if past.len() == 0 {
                        is_finite = false;
                        opened.push((name, Opened::Reader(reader)));
                        continue;
                    }
                    let file = copied(reader).map_err(|error| unreadable(&name, error))?;
                    (name, file)
                }
                ItemSource::File(path) => {
                    let name = path.display().to_string();
                    let open = || {
                        let file = File::open(&path)?;
                        let kind = file.metadata()?.file_type();
                        match kind.is_dir() {
                            true => Err(io::ErrorKind::IsADirectory.into()),
                            false => Ok((file, kind.is_file())),
                        }
                    };
                    let (file, is_regular) = open().map_err(|error| unreadable(&name, error))?;
                    if !is_regular && past.len() == 0 {
                        is_finite = false;
                        opened.push((name, Opened::Reader(Box::new(file))));
                        continue;
                    }
                    let file = match is_regular {
                        true => file,
                        false => copied(file).map_err(|error| unreadable(&name, error))?,
                    };
                    (name, file)
                }
            };
            let mut checked = || -> io::Result<()> {
                let mut lines = Lines::new(&file, format);
                while let Some(line) = lines.next()? {
                    if let Some(why) = line.problem(format)
                        && bad.len() < MAX_BAD_ITEMS
                    {
                        let (source, line) = (name.clone(), lines.number);
                        bad.push(BadItem { source, line, why });
                    }
                    if past.len() > 0 {
                        found += usize::from(known.is_in(past, &line.into_text()));
                    }
                }
                (&file).rewind()
            };
            checked().map_err(|error| unreadable(&name, error))?;
            opened.push((name, Opened::Reader(Box::new(file))));
        }
        if !bad.is_empty() {
            bad.truncate(MAX_BAD_ITEMS);
            return Err(RunError::BadItems(bad));
        }
        if found < past.len() {
            let missing = past.len() - found;
            return Err(RunError::OtherList { missing });
        }
        let (sender, batches) = mpsc::channel(4);
        let past = Arc::clone(past);
        thread::spawn(move || {
            let mut list = List {
                sender,
                format,
                past,
                occurrences: has_journal.then(Occurrences::default),
                number: 0,
                batch: Vec::with_capacity(BATCH),
            };
            // The receiver is gone when the run ends early.
            _ = list.send_all(opened);
        });
        Ok(Self { batches, is_finite })
    }

    /// The next items; empty at the end of the list.
    pub(super) async fn next(&mut self) -> Batch {
        self.batches.recv().await.unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// The name of items on the command line, in messages.
const ARGUMENTS: &str = "item";

enum Opened {
    Texts(Vec<String>),
    Reader(Box<dyn Read + Send>),
}

fn unreadable(name: &str, source: io::Error) -> RunError {
    let name = name.to_owned();
    RunError::Items { name, source }
}

/// A stream in a temporary file, so that it can be read twice.
fn copied(mut stream: impl Read) -> io::Result<File> {
    let mut file = temporary_file()?;
    io::copy(&mut stream, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// Counts equal items. A hash stands for a text, with a seed of this process.
#[derive(Default)]
struct Occurrences {
    counts: HashMap<u64, u32>,
    seed: RandomState,
}

impl Occurrences {
    fn next(&mut self, text: &str) -> u32 {
        let count = self.counts.entry(self.seed.hash_one(text)).or_insert(0);
        *count += 1;
        *count
    }

    /// Does the journal know the next item of this text?
    fn is_in(&mut self, past: &Past, text: &str) -> bool {
        let occurrence = self.next(text);
        past.find(text, occurrence).is_some()
    }
}

/// Sends the list; an error is that there is no receiver any more.
struct List {
    sender: mpsc::Sender<Batch>,
    format: ItemFormat,
    past: Arc<Past>,
    /// Counted only for a journal.
    occurrences: Option<Occurrences>,
    number: u64,
    batch: Vec<Listed>,
}

struct NoReceiver;

impl List {
    fn send_all(&mut self, sources: Vec<(String, Opened)>) -> Result<(), NoReceiver> {
        for (name, source) in sources {
            match source {
                Opened::Texts(texts) => {
                    for text in texts.into_iter().filter(|text| !text.is_empty()) {
                        self.add(Line::Text(text))?;
                    }
                }
                Opened::Reader(reader) => self.send_lines(&name, reader)?,
            }
        }
        self.flush()
    }

    fn send_lines(&mut self, name: &str, reader: Box<dyn Read + Send>) -> Result<(), NoReceiver> {
        let mut lines = Lines::new(reader, self.format);
        loop {
            // A producer may be slow: what is there already must not wait for it.
            if lines.must_wait() {
                self.flush()?;
            }
            match lines.next() {
                Ok(Some(line)) => self.add(line)?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.flush()?;
                    let error = Err(unreadable(name, error));
                    return self.sender.blocking_send(error).map_err(|_| NoReceiver);
                }
            }
        }
    }

    fn add(&mut self, line: Line) -> Result<(), NoReceiver> {
        self.number += 1;
        let problem = line.problem(self.format);
        let text = line.into_text();
        let occurrences = self.occurrences.as_mut();
        let occurrence = occurrences.map_or(1, |occurrences| occurrences.next(&text));
        let attempts = match self.past.find(&text, occurrence) {
            Some(PastItem::Finished) => return Ok(()),
            Some(PastItem::Attempts(attempts)) => attempts,
            None => 0,
        };
        let item = Item {
            number: self.number,
            occurrence,
            attempts,
            text: text.into(),
        };
        self.batch.push(match problem {
            None => Listed::Item(item),
            Some(why) => Listed::Bad(item, why),
        });
        match self.batch.len() >= BATCH {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), NoReceiver> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.sender.blocking_send(Ok(batch)).map_err(|_| NoReceiver)
    }
}

/// A line that is not empty.
enum Line {
    Text(String),
    /// Not UTF-8; as it may be shown.
    NotUtf8(String),
    /// Longer than an argument may be; its beginning.
    TooLong(String),
}

impl Line {
    fn problem(&self, format: ItemFormat) -> Option<String> {
        match self {
            Self::Text(text) => format.problem(text),
            Self::NotUtf8(text) => {
                let shown: String = text.chars().take(80).collect();
                Some(format!("`{shown}` is not UTF-8"))
            }
            Self::TooLong(_) => Some(format!(
                "an item of more than {} bytes, which no argument can have",
                MAX_ITEM - 1
            )),
        }
    }

    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::NotUtf8(text) | Self::TooLong(text) => text,
        }
    }
}

/// Reads lines with a bound on their length.
struct Lines<R> {
    reader: BufReader<R>,
    end: u8,
    /// The last line's number, counted from 1.
    number: u64,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    fn new(reader: R, format: ItemFormat) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            end: if format.is_null_separated { 0 } else { b'\n' },
            number: 0,
            line: Vec::new(),
        }
    }

    /// Is the next line not in the buffer?
    fn must_wait(&self) -> bool {
        !self.reader.buffer().contains(&self.end)
    }

    fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            self.line.clear();
            let limit = MAX_ITEM as u64 + 1;
            let read = (&mut self.reader)
                .take(limit)
                .read_until(self.end, &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let is_whole = self.line.last() == Some(&self.end);
            if is_whole {
                self.line.pop();
            } else if read as u64 == limit {
                self.reader.skip_until(self.end)?;
                self.line.truncate(200);
                let text = String::from_utf8_lossy(&self.line).into_owned();
                return Ok(Some(Line::TooLong(text)));
            }
            if self.end == b'\n' && self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
            if self.line.is_empty() {
                continue;
            }
            return Ok(Some(match str::from_utf8(&self.line) {
                Ok(text) => Line::Text(text.to_owned()),
                Err(_) => Line::NotUtf8(String::from_utf8_lossy(&self.line).into_owned()),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn open(sources: Vec<ItemSource>, format: ItemFormat) -> Result<Input, RunError> {
        Input::open(sources, format, &Arc::default(), false)
    }

    async fn listed(text: &[u8], format: ItemFormat) -> Vec<String> {
        let stream = ItemSource::Stream(Box::new(Cursor::new(text.to_vec())));
        let mut input = open(vec![stream], format).unwrap();
        let mut all = Vec::new();
        loop {
            let batch = input.next().await.unwrap();
            if batch.is_empty() {
                return all;
            }
            all.extend(batch.into_iter().map(|listed| match listed {
                Listed::Item(item) => format!("{} {}", item.number, item.text),
                Listed::Bad(item, why) => format!("{} bad: {why}", item.number),
            }));
        }
    }

    #[tokio::test]
    async fn lines_end_with_or_without_carriage_return() {
        let format = ItemFormat::default();
        let items = listed(b"a\n\nb c \r\n\r\nlast", format).await;
        assert_eq!(items, ["1 a", "2 b c ", "3 last"]);
        assert_eq!(listed(b"", format).await, [""; 0]);
    }

    #[tokio::test]
    async fn null_separated_items_may_have_line_ends() {
        let format = ItemFormat {
            is_null_separated: true,
            ..ItemFormat::default()
        };
        assert_eq!(listed(b"a\nb\0\0c\r\0", format).await, ["1 a\nb", "2 c\r"]);
    }

    #[tokio::test]
    async fn items_that_no_argument_can_be_are_bad() {
        let mut text = b"-rf\nok\n\xff\n".to_vec();
        text.extend(vec![b'x'; 300_000]);
        text.extend(b"\nafter\n");
        let items = listed(&text, ItemFormat::default()).await;
        assert_eq!(
            items,
            [
                "1 bad: `-rf` starts with `-`: the command would read it as an option; `--allow-dash` allows it",
                "2 ok",
                "3 bad: `\u{fffd}` is not UTF-8",
                "4 bad: an item of more than 131071 bytes, which no argument can have",
                "5 after",
            ]
        );
        let format = ItemFormat {
            allows_dash: true,
            is_per_host: true,
            ..ItemFormat::default()
        };
        let items = listed(b"-x\nhttps://a.example/b\nnot a host\n", format).await;
        assert_eq!(items[1], "2 https://a.example/b");
        assert!(items[2].contains("has no site for `--per-host`, expected no white space"));
    }

    #[test]
    fn files_are_checked_before_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "a\n-b\n\n-c\n").unwrap();
        let sources = vec![
            ItemSource::File(path.clone()),
            ItemSource::Texts(vec!["x".to_owned(), "-y".to_owned()]),
        ];
        let error = open(sources, ItemFormat::default()).unwrap_err();
        let text = error
            .to_string()
            .replace(&path.display().to_string(), "list");
        for expected in ["list:2: `-b` starts", "; list:4: `-c`", "; item:2: `-y`"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let missing = ItemSource::File(folder.path().join("missing"));
        let error = open(vec![missing], ItemFormat::default()).unwrap_err();
        assert!(matches!(error, RunError::Items { .. }));
    }
}
