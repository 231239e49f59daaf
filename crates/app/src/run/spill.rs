//! A queue that moves to a temporary file when it is long.
//!
//! The file has no name: it is removed as soon as it is open, and its space is freed when the
//! process ends in any way.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::temporary::temporary_file;

/// First in, first out; the oldest [`MAX_IN_MEMORY`] in memory.
#[derive(Debug)]
pub(super) struct Spill<T> {
    /// The oldest.
    front: VecDeque<T>,
    /// Those after them.
    file: Option<SpillFile>,
    max_in_memory: usize,
}

#[derive(Debug)]
struct SpillFile {
    file: File,
    read_at: u64,
    write_at: u64,
    /// Records that were read from the file together, up to `read_at`, are in `front`.
    count: usize,
    /// Not written yet, because single records are small.
    unwritten: Vec<u8>,
}

/// Some megabytes of items.
const MAX_IN_MEMORY: usize = 50_000;

impl<T> Default for Spill<T> {
    fn default() -> Self {
        Self {
            front: VecDeque::new(),
            file: None,
            max_in_memory: MAX_IN_MEMORY,
        }
    }
}

impl<T: Serialize + DeserializeOwned> Spill<T> {
    #[cfg(test)]
    fn with_memory_for(max_in_memory: usize) -> Self {
        Self {
            max_in_memory,
            ..Self::default()
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.front.len() + self.file.as_ref().map_or(0, |file| file.count)
    }

    pub(super) fn push(&mut self, record: T) -> io::Result<()> {
        if self.file.is_none() && self.front.len() < self.max_in_memory {
            self.front.push_back(record);
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(SpillFile::create()?),
        };
        file.push(&record)
    }

    pub(super) fn pop(&mut self) -> io::Result<Option<T>> {
        if self.front.is_empty()
            && let Some(file) = &mut self.file
        {
            self.front = file.read(self.max_in_memory)?;
            if file.count == 0 {
                self.file = None;
            }
        }
        Ok(self.front.pop_front())
    }
}

impl SpillFile {
    fn create() -> io::Result<Self> {
        let file = temporary_file()?;
        Ok(Self {
            file,
            read_at: 0,
            write_at: 0,
            count: 0,
            unwritten: Vec::new(),
        })
    }

    fn push(&mut self, record: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.unwritten, record)?;
        self.unwritten.push(b'\n');
        self.count += 1;
        match self.unwritten.len() > BUFFER {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.unwritten, self.write_at)?;
        self.write_at += self.unwritten.len() as u64;
        self.unwritten.clear();
        Ok(())
    }

    /// The next records, at most `max` of them.
    fn read<T: DeserializeOwned>(&mut self, max: usize) -> io::Result<VecDeque<T>> {
        self.flush()?;
        let mut records = VecDeque::new();
        let mut bytes = Vec::new();
        while records.len() < max && self.count > 0 {
            let length = usize::try_from(self.write_at - self.read_at).unwrap_or(usize::MAX);
            let start = bytes.len();
            bytes.resize(start + length.min(BUFFER), 0);
            self.file.read_exact_at(&mut bytes[start..], self.read_at)?;
            self.read_at += (bytes.len() - start) as u64;
            let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
            let mut used = 0;
            while records.len() < max
                && let Some(line) = lines.next_if(|line| line.ends_with(b"\n"))
            {
                records.push_back(serde_json::from_slice(line)?);
                self.count -= 1;
                used += line.len();
            }
            bytes.drain(..used);
        }
        self.read_at -= bytes.len() as u64;
        Ok(records)
    }
}

/// What is written and read at once.
const BUFFER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_in_memory_and_in_the_file() {
        let mut spill = Spill::with_memory_for(3);
        let mut popped = Vec::new();
        let mut next = 0_u32;
        for round in 0..50 {
            for _ in 0..round {
                spill.push(format!("{next} {}", "x".repeat(5000))).unwrap();
                next += 1;
            }
            for _ in 0..round / 2 {
                popped.extend(spill.pop().unwrap());
            }
        }
        assert_eq!(spill.len(), next as usize - popped.len());
        while let Some(record) = spill.pop().unwrap() {
            popped.push(record);
        }
        let numbers = popped
            .iter()
            .map(|record| record.split(' ').next().unwrap());
        let expected = (0..next).map(|number| number.to_string());
        assert!(numbers.eq(expected));
        assert_eq!(spill.len(), 0);
        assert!(spill.file.is_none());
    }
}
