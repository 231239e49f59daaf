//! The index of a folder: which file belongs to which URL, and the validators of its response.
//!
//! JSON lines, appended; the last line of a URL counts. A line that is incomplete or cannot be read is
//! left out: the URL is fetched again then. In memory there are two hashes and an offset for each URL;
//! the rest is read from the file when it is needed.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::name;

/// A line of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IndexEntry {
    pub(super) url: String,
    pub(super) file: String,
    pub(super) etag: Option<String>,
    pub(super) last_modified: Option<String>,
    pub(super) sha256: String,
    pub(super) bytes: u64,
    pub(super) content_type: Option<String>,
    pub(super) title: Option<String>,
}

#[derive(Debug)]
pub(super) struct Index {
    file: File,
    /// Where the next line goes.
    end: u64,
    /// Lines that a later one replaces, or that cannot be read.
    superseded: usize,
    hasher: RandomState,
    /// From the hash of a URL to its last line.
    lines: HashMap<u64, u64>,
    /// From the hash of a folded name to its owner: the hash of a URL, or [`FOLDER`].
    names: HashMap<u64, u64>,
}

/// The owner of a folder's name.
const FOLDER: u64 = 0;

impl Index {
    /// Reads the index, and cuts off an incomplete last line.
    pub(super) fn read(file: File) -> io::Result<Self> {
        let mut index = Self {
            file,
            end: 0,
            superseded: 0,
            hasher: RandomState::new(),
            lines: HashMap::new(),
            names: HashMap::new(),
        };
        let mut file = index.file.try_clone()?;
        file.rewind()?;
        let mut reader = BufReader::with_capacity(64 << 10, file);
        let mut line = Vec::new();
        while read_line(&mut reader, &mut line)? {
            let offset = index.end;
            index.end += line.len() as u64;
            let entry = serde_json::from_slice(&line).ok();
            let is_used = entry.is_some_and(|entry| index.add(&entry, offset));
            index.superseded += usize::from(!is_used);
        }
        index.file.set_len(index.end)?;
        Ok(index)
    }

    /// Would the file be less than half as long without lines that do not count?
    pub(super) fn is_wasteful(&self) -> bool {
        self.superseded > self.lines.len() + 1000
    }

    /// Copies the lines that count.
    pub(super) fn copy(&self, target: &File) -> io::Result<()> {
        let mut target = io::BufWriter::with_capacity(64 << 10, target);
        let mut offsets: Vec<u64> = self.lines.values().copied().collect();
        offsets.sort_unstable();
        for offset in offsets {
            if let Some(line) = self.line(offset)? {
                target.write_all(&line)?;
            }
        }
        target.flush()
    }

    pub(super) fn find(&self, url: &str) -> Option<IndexEntry> {
        let offset = *self.lines.get(&self.url_hash(url))?;
        let line = self.line(offset).ok()??;
        let entry: IndexEntry = serde_json::from_slice(&line).ok()?;
        (entry.url == url).then_some(entry)
    }

    /// May the URL have this name, and no other URL or folder?
    pub(super) fn is_free(&self, file: &str, url: &str) -> bool {
        let owner = self.url_hash(url);
        let parents = parents(file).all(|folder| {
            let owner = self.names.get(&self.name_hash(folder));
            owner.is_none_or(|owner| *owner == FOLDER)
        });
        let has_name = self.names.get(&self.name_hash(file));
        parents && has_name.is_none_or(|other| *other == owner)
    }

    /// Appends a line. After an error the file is as before.
    pub(super) fn append(&mut self, entry: &IndexEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        if line.len() > MAX_LINE {
            return Err(io::Error::other("the URL is too long for the index"));
        }
        if let Err(error) = self.file.write_all_at(&line, self.end) {
            // What follows would not start on a line of its own. A second error is the same one.
            _ = self.file.set_len(self.end);
            return Err(error);
        }
        let offset = self.end;
        self.end += line.len() as u64;
        self.add(entry, offset);
        Ok(())
    }

    /// Adds a line to the maps, unless its name is no name or belongs to another URL.
    fn add(&mut self, entry: &IndexEntry, offset: u64) -> bool {
        if !name::is_safe(&entry.file) || !self.is_free(&entry.file, &entry.url) {
            return false;
        }
        for folder in parents(&entry.file) {
            let hash = self.name_hash(folder);
            self.names.insert(hash, FOLDER);
        }
        let url = self.url_hash(&entry.url);
        let hash = self.name_hash(&entry.file);
        self.names.insert(hash, url);
        let earlier = self.lines.insert(url, offset);
        self.superseded += usize::from(earlier.is_some());
        true
    }

    fn url_hash(&self, url: &str) -> u64 {
        self.hasher.hash_one(url).max(FOLDER + 1)
    }

    fn name_hash(&self, file: &str) -> u64 {
        self.hasher.hash_one(name::fold(file))
    }

    /// The line that starts at an offset.
    fn line(&self, offset: u64) -> io::Result<Option<Vec<u8>>> {
        let reader = At {
            file: &self.file,
            offset,
        };
        let mut line = Vec::new();
        let mut reader = BufReader::with_capacity(1 << 10, reader);
        Ok(read_line(&mut reader, &mut line)?.then_some(line))
    }
}

/// The folders of a name, outermost first.
fn parents(file: &str) -> impl Iterator<Item = &str> {
    file.match_indices('/').map(|(end, _)| &file[..end])
}

/// Reads a line with its end; no further one if it is incomplete or too long.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    reader.take(MAX_LINE as u64).read_until(b'\n', line)?;
    Ok(line.ends_with(b"\n"))
}

/// A file from an offset on.
struct At<'f> {
    file: &'f File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.offset)?;
        self.offset += length as u64;
        Ok(length)
    }
}

/// Several times the longest URL.
const MAX_LINE: usize = 256 << 10;
