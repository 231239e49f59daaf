//! Titles that several pages have, found in bounded memory.
//!
//! A title that was seen once takes a hash and the place of its page's URL in one buffer. Only when a
//! second page has it, the title itself and the URLs are stored.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::builder::clip;
use super::{DuplicateTitle, Listed};

/// How many titles are compared at most: about 7 MB of hashes. Later titles are not compared with
/// each other, only with these.
pub(super) const MAX_TITLES: usize = 200_000;
/// The buffer for the URLs of titles that were seen once: 40 bytes for each title. A URL that does
/// not fit is missing from its row, but counted.
pub(super) const MAX_FIRST_URLS: usize = 8 << 20;
/// How many bytes the titles and URLs of duplicates take at most.
pub(super) const MAX_DUPLICATE_BYTES: usize = 4 << 20;
/// How many pages are named for a title; a person looks at a few.
pub(super) const MAX_URLS_PER_TITLE: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Titles {
    hasher: RandomState,
    seen: HashMap<u64, Seen>,
    first_urls: String,
    duplicates: HashMap<u64, DuplicateTitle>,
    /// The bytes in `duplicates`.
    stored: usize,
    /// Titles with several pages, also those for which there was no room.
    total: u64,
    is_cut: bool,
}

/// A title.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Of the first page's URL in `first_urls`.
    start: u32,
    length: u16,
    is_duplicate: bool,
}

impl Titles {
    /// A page with this title.
    pub(super) fn add(&mut self, title: &str, url: &str) {
        let hash = self.hasher.hash_one(title);
        let Some(seen) = self.seen.get_mut(&hash) else {
            if self.seen.len() < MAX_TITLES {
                let seen = self.remember(url);
                self.seen.insert(hash, seen);
            } else {
                self.is_cut = true;
            }
            return;
        };
        let first = seen.url(&self.first_urls);
        if first == url {
            return;
        }
        if !seen.is_duplicate {
            seen.is_duplicate = true;
            self.total += 1;
            let (title, first) = (clip(title), first.to_owned());
            if self.stored + title.len() + first.len() <= MAX_DUPLICATE_BYTES {
                self.stored += title.len() + first.len();
                let urls = Some(first).filter(|first| !first.is_empty());
                let duplicate = DuplicateTitle {
                    title,
                    pages: 1,
                    urls: urls.into_iter().collect(),
                };
                self.duplicates.insert(hash, duplicate);
            }
        }
        if let Some(duplicate) = self.duplicates.get_mut(&hash) {
            duplicate.pages += 1;
            let has_room = duplicate.urls.len() < MAX_URLS_PER_TITLE;
            if has_room && self.stored + url.len() <= MAX_DUPLICATE_BYTES {
                let url = clip(url);
                self.stored += url.len();
                duplicate.urls.push(url);
            }
        }
    }

    fn remember(&mut self, url: &str) -> Seen {
        let has_room = self.first_urls.len() + url.len() <= MAX_FIRST_URLS;
        let length = u16::try_from(url.len()).ok().filter(|_| has_room);
        let start = u32::try_from(self.first_urls.len()).unwrap_or(u32::MAX);
        if length.is_some() {
            self.first_urls.push_str(url);
        }
        Seen {
            start,
            length: length.unwrap_or(0),
            is_duplicate: false,
        }
    }

    /// The titles with most pages.
    pub(super) fn finish(self, max_rows: usize) -> Listed<DuplicateTitle> {
        let mut rows: Vec<_> = self.duplicates.into_values().collect();
        rows.sort_by(|one, other| (other.pages, &one.title).cmp(&(one.pages, &other.title)));
        rows.truncate(max_rows);
        Listed {
            total: self.total,
            is_at_least: self.is_cut,
            rows,
        }
    }

    /// About how many bytes it takes.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        const ENTRY: usize = size_of::<(u64, Seen)>() + 1;
        self.seen.capacity() * ENTRY + self.first_urls.capacity() + self.stored
    }
}

impl Seen {
    fn url(self, urls: &str) -> &str {
        let start = self.start as usize;
        urls.get(start..start + usize::from(self.length))
            .unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_titles_with_several_pages() {
        let mut titles = Titles::default();
        for (title, url) in [
            ("Home", "http://a/"),
            ("About", "http://a/about"),
            ("Home", "http://a/index"),
            ("Home", "http://a/"),
            ("Shop", "http://a/shop"),
            ("Home", "http://b/"),
            ("About", "http://b/about"),
        ] {
            titles.add(title, url);
        }
        let found = titles.finish(10);
        let rows: Vec<_> = found
            .rows
            .iter()
            .map(|row| (row.title.as_str(), row.pages, row.urls.join(" ")))
            .collect();
        assert_eq!(
            rows,
            [
                ("Home", 3, "http://a/ http://a/index http://b/".to_owned()),
                ("About", 2, "http://a/about http://b/about".to_owned()),
            ]
        );
        assert_eq!((found.total, found.is_at_least), (2, false));
    }

    #[test]
    fn long_urls_and_many_titles_stay_within_the_bounds() {
        let mut titles = Titles::default();
        let tail = "x".repeat(3000);
        for index in 0..MAX_TITLES * 2 + 10 {
            titles.add(
                &format!("title {}", index / 2),
                &format!("http://a/{index}/{tail}"),
            );
        }
        for index in 0..MAX_TITLES + 10 {
            titles.add(&format!("other {index}"), "http://a/");
        }
        assert!(titles.size() < (24 << 20), "{}", titles.size());
        let found = titles.finish(500);
        assert_eq!(found.rows.len(), 500);
        assert_eq!(found.total, MAX_TITLES as u64);
        assert!(found.is_at_least);
    }
}
