//! Which page links to which URL, for the sources of broken links.
//!
//! Sixteen bytes for each link, in a file: a hash of the target and the place of the page in the
//! frontier. They are read once, at the end, for the URLs that failed.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::temporary::temporary_file;

/// Which page links to which URL.
#[derive(Debug)]
pub(super) struct Links {
    file: File,
    unwritten: Vec<u8>,
    count: u64,
}

/// The length of one link.
const LINK: usize = 16;

/// What is written at once.
const BLOCK: usize = 64 << 10;

/// 1.6 GB; later links are not noted.
const MAX_LINKS: u64 = 100_000_000;

/// As many sources of a URL as are shown.
const MAX_SOURCES: usize = 20;

impl Links {
    /// In a file without a name.
    pub(super) fn temporary() -> io::Result<Self> {
        Ok(Self::new(temporary_file()?, 0))
    }

    /// In this file, after the links of earlier runs.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let length = file.metadata()?.len();
        let count = length / LINK as u64;
        // Its writing may have been interrupted.
        file.set_len(count * LINK as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self::new(file, count))
    }

    fn new(file: File, count: u64) -> Self {
        Self {
            file,
            unwritten: Vec::new(),
            count,
        }
    }

    /// Notes that the page at this place of the frontier links to `target`.
    pub(super) fn add(&mut self, target: &str, page: u64) -> io::Result<()> {
        if self.count >= MAX_LINKS {
            return Ok(());
        }
        self.count += 1;
        self.unwritten
            .extend_from_slice(&hash(target).to_le_bytes());
        self.unwritten.extend_from_slice(&page.to_le_bytes());
        match self.unwritten.len() >= BLOCK {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes everything.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.unwritten)?;
        self.unwritten.clear();
        Ok(())
    }

    /// The places of some pages that link to each of these URLs.
    pub(super) fn sources<'u>(
        &mut self,
        targets: impl Iterator<Item = &'u str>,
    ) -> io::Result<HashMap<&'u str, Vec<u64>>> {
        self.flush()?;
        let names: HashMap<u64, &str> = targets.map(|target| (hash(target), target)).collect();
        let mut sources: HashMap<&str, Vec<u64>> = HashMap::new();
        self.file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(BLOCK, &self.file);
        let mut link = [0; LINK];
        for _ in 0..self.count {
            reader.read_exact(&mut link)?;
            let (target, page) = link.split_at(LINK / 2);
            let Some(target) = names.get(&number(target)) else {
                continue;
            };
            let pages = sources.entry(target).or_default();
            let page = number(page);
            if pages.len() < MAX_SOURCES && !pages.contains(&page) {
                pages.push(page);
            }
        }
        Ok(sources)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The same in every run.
fn hash(url: &str) -> u64 {
    rapidhash::v3::rapidhash_v3(url.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_sources_of_some_urls_over_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links");
        let mut links = Links::open(&path).unwrap();
        links.add("http://a.example/", 17).unwrap();
        links.add("http://b.example/", 17).unwrap();
        links.flush().unwrap();
        drop(links);
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"torn").unwrap();
        let mut links = Links::open(&path).unwrap();
        links.add("http://a.example/", 99).unwrap();
        links.add("http://a.example/", 17).unwrap();
        for page in 0..100 {
            links.add("http://c.example/", page).unwrap();
        }
        let urls = [
            "http://a.example/",
            "http://c.example/",
            "http://d.example/",
        ];
        let sources = links.sources(urls.into_iter()).unwrap();
        assert_eq!(sources["http://a.example/"], [17, 99]);
        assert_eq!(sources["http://c.example/"].len(), MAX_SOURCES);
        assert!(!sources.contains_key("http://d.example/"));
    }
}
