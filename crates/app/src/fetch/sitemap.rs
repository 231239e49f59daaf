//! Reads sitemaps while they arrive: XML, also compressed, plain text, and feeds.
//!
//! Only what has arrived since the last whole tag is held. `quick-xml` knows no entities but the five
//! of XML and loads nothing, so a document cannot grow while it is read.

use std::fmt;

use quick_xml::errors::{Error as XmlError, SyntaxError};
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use url::Url;

use super::decode::{DecodeError, Decoder};
use super::url::{MAX_URL_LEN, parse_given, resolve};

/// Something that a sitemap lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SitemapEntry {
    /// A page.
    Page(Url),
    /// A further sitemap, listed in an index.
    Sitemap(Url),
}

/// How much a sitemap listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SitemapCounts {
    /// Entries that were handed on.
    pub(crate) found: u64,
    /// Entries that are no URL to request: of another scheme, broken, or too long.
    pub(crate) ignored: u64,
}

/// Why a sitemap cannot be read any further. What was found before stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SitemapError {
    /// It is no sitemap: a page, an image, another kind of XML.
    NotASitemap,
    /// It is no well-formed XML from this byte on.
    BadXml(u64),
    /// It is compressed and cannot be decoded.
    Decode(DecodeError),
    /// It is longer than [`MAX_BYTES`].
    TooLong,
    /// It has more than [`MAX_ENTRIES`].
    TooManyEntries,
}

impl fmt::Display for SitemapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASitemap => f.write_str(
                "the body is no sitemap: expected XML with `urlset` or `sitemapindex`, a feed, or a URL on each line",
            ),
            Self::BadXml(place) => write!(f, "the sitemap is no XML from byte {place} on"),
            Self::Decode(error) => write!(f, "the sitemap cannot be decoded: {error}"),
            Self::TooLong => write!(f, "the sitemap is longer than {} MiB", MAX_BYTES >> 20),
            Self::TooManyEntries => write!(f, "the sitemap has more than {MAX_ENTRIES} entries"),
        }
    }
}

impl std::error::Error for SitemapError {}

/// The longest sitemap, decoded. The protocol allows 50 MiB.
pub(crate) const MAX_BYTES: u64 = 200 << 20;

/// The most entries of one sitemap. The protocol allows 50,000.
pub(crate) const MAX_ENTRIES: u64 = 1_000_000;

/// What is held of a tag, a comment or a line that has not ended.
const MAX_HELD: usize = 64 * 1024;

/// How many lines without a URL a text may start with.
const MAX_FOREIGN_LINES: u64 = 20;

/// Reads one sitemap.
#[derive(Debug)]
pub(crate) struct SitemapReader {
    packing: Packing,
    content: Content,
}

/// Whether the sitemap is compressed, whatever the response says: by its first two bytes.
#[derive(Debug)]
enum Packing {
    Unknown(Vec<u8>),
    None,
    Gzip(Box<Decoder>),
}

/// Where entries go.
type Sink<'a> = &'a mut dyn FnMut(SitemapEntry);

impl SitemapReader {
    /// A reader for the sitemap at this URL.
    pub(crate) fn new(url: &Url) -> Self {
        Self {
            packing: Packing::Unknown(Vec::new()),
            content: Content::new(url),
        }
    }

    /// Reads on and hands on what it finds.
    ///
    /// # Errors
    ///
    /// If it is no sitemap, or too long; then the reader is of no use any more.
    pub(crate) fn write(
        &mut self,
        piece: &[u8],
        found: &mut impl FnMut(SitemapEntry),
    ) -> Result<(), SitemapError> {
        match &mut self.packing {
            Packing::Unknown(first) => {
                first.extend_from_slice(piece);
                if first.len() < GZIP.len() {
                    return Ok(());
                }
                let first = std::mem::take(first);
                self.packing = if first.starts_with(&GZIP) {
                    let decoder = Decoder::new(Some("gzip"), MAX_BYTES);
                    Packing::Gzip(Box::new(decoder.map_err(SitemapError::Decode)?))
                } else {
                    Packing::None
                };
                self.write(&first, found)
            }
            Packing::None => self.content.read(piece, found),
            Packing::Gzip(decoder) => {
                let mut read = Ok(());
                let decoded = decoder.write(piece, &mut |text: &[u8]| {
                    if read.is_ok() {
                        read = self.content.read(text, found);
                    }
                });
                read?;
                decoded.map_err(SitemapError::from)
            }
        }
    }

    /// Ends the sitemap.
    ///
    /// # Errors
    ///
    /// If it ends too early, or is none.
    pub(crate) fn finish(
        mut self,
        found: &mut impl FnMut(SitemapEntry),
    ) -> Result<SitemapCounts, SitemapError> {
        match self.packing {
            Packing::Unknown(first) => self.content.read(&first, found)?,
            Packing::None => {}
            Packing::Gzip(decoder) => decoder.finish()?,
        }
        self.content.finish(found)
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

impl From<DecodeError> for SitemapError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLarge { .. } => Self::TooLong,
            error => Self::Decode(error),
        }
    }
}

/// The text of a sitemap.
struct Content {
    base: Url,
    decoder: encoding_rs::Decoder,
    /// What has not been understood yet.
    held: String,
    format: Format,
    counts: SitemapCounts,
    /// Bytes of the text that arrived, and that were understood.
    arrived: u64,
    read: u64,
}

enum Format {
    Unknown,
    Xml(Xml),
    Lines,
}

impl Content {
    fn new(url: &Url) -> Self {
        Self {
            base: url.clone(),
            // Another encoding is seen by its byte order mark; names in sitemaps are ASCII.
            decoder: encoding_rs::UTF_8.new_decoder(),
            held: String::new(),
            format: Format::Unknown,
            counts: SitemapCounts::default(),
            arrived: 0,
            read: 0,
        }
    }

    fn read(&mut self, piece: &[u8], found: Sink<'_>) -> Result<(), SitemapError> {
        for piece in piece.chunks(MAX_HELD) {
            self.arrived += piece.len() as u64;
            if self.arrived > MAX_BYTES {
                return Err(SitemapError::TooLong);
            }
            let len = self.decoder.max_utf8_buffer_length(piece.len());
            self.held.reserve(len.unwrap_or(0));
            // There is room for all of it.
            let _ = self.decoder.decode_to_string(piece, &mut self.held, false);
            self.understand(false, found)?;
            if self.held.len() > MAX_HELD {
                return Err(match self.format {
                    Format::Xml(_) => SitemapError::BadXml(self.read),
                    Format::Unknown | Format::Lines => SitemapError::NotASitemap,
                });
            }
        }
        Ok(())
    }

    fn finish(mut self, found: Sink<'_>) -> Result<SitemapCounts, SitemapError> {
        self.understand(true, found)?;
        let is_sitemap = match &self.format {
            Format::Unknown => false,
            Format::Xml(xml) => xml.root.is_some(),
            Format::Lines => self.counts.found > 0,
        };
        if is_sitemap {
            Ok(self.counts)
        } else {
            Err(SitemapError::NotASitemap)
        }
    }

    /// Understands as much of what is held as has ended; at the end, all of it.
    fn understand(&mut self, is_end: bool, found: Sink<'_>) -> Result<(), SitemapError> {
        if let Format::Unknown = self.format {
            let text = self.held.trim_start();
            let space = self.held.len() - text.len();
            self.format = match text.chars().next() {
                None => Format::Unknown,
                Some('<') => Format::Xml(Xml::default()),
                Some(_) => Format::Lines,
            };
            self.take(space);
        }
        let end = match self.format {
            Format::Unknown => return Ok(()),
            _ if is_end => Some(self.held.len()),
            Format::Xml(_) => self.held.rfind('>').map(|place| place + 1),
            Format::Lines => self.held.rfind(['\n', '\r']).map(|place| place + 1),
        };
        let Some(end) = end else {
            return Ok(());
        };
        let held = std::mem::take(&mut self.held);
        let text = &held[..end];
        let read = match &mut self.format {
            Format::Xml(xml) => {
                let mut entries = Entries {
                    base: &self.base,
                    counts: &mut self.counts,
                    found,
                };
                let read = xml.read(text, &mut entries).map_err(|error| match error {
                    SitemapError::BadXml(place) => SitemapError::BadXml(self.read + place),
                    error => error,
                })?;
                if is_end && read < text.len() {
                    return Err(SitemapError::BadXml(self.read + read as u64));
                }
                read
            }
            Format::Unknown | Format::Lines => {
                self.read_lines(text, found)?;
                end
            }
        };
        self.held = held;
        self.take(read);
        Ok(())
    }

    /// Removes what was understood.
    fn take(&mut self, len: usize) {
        self.held.drain(..len);
        self.read += len as u64;
    }

    fn read_lines(&mut self, text: &str, found: Sink<'_>) -> Result<(), SitemapError> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let url = parse_given(line).ok();
            self.counts.add(url.map(SitemapEntry::Page), found)?;
            if self.counts.found == 0 && self.counts.ignored > MAX_FOREIGN_LINES {
                return Err(SitemapError::NotASitemap);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl SitemapCounts {
    /// Counts an entry, and hands it on if it is one.
    fn add(&mut self, entry: Option<SitemapEntry>, found: Sink<'_>) -> Result<(), SitemapError> {
        if self.found + self.ignored == MAX_ENTRIES {
            return Err(SitemapError::TooManyEntries);
        }
        match entry {
            Some(entry) => {
                self.found += 1;
                found(entry);
            }
            None => self.ignored += 1,
        }
        Ok(())
    }
}

/// Where a document is read.
#[derive(Debug, Default)]
struct Xml {
    root: Option<Root>,
    depth: usize,
    entry: Option<EntryKind>,
    /// The URL of the entry, as far as it was read; `None` outside of its element.
    location: Option<String>,
    /// Whether the URL is too long or has an unknown entity.
    is_bad_location: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// `urlset` or `sitemapindex`.
    Sitemap,
    Rss,
    Atom,
}

impl Root {
    /// How deep its entries are; their URLs are one deeper.
    const fn entry_depth(self) -> usize {
        match self {
            Self::Sitemap | Self::Atom => 2,
            Self::Rss => 3,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Page,
    Sitemap,
}

/// Where the entries of a document go.
struct Entries<'a> {
    base: &'a Url,
    counts: &'a mut SitemapCounts,
    found: Sink<'a>,
}

impl Entries<'_> {
    fn add(&mut self, kind: EntryKind, location: Option<&str>) -> Result<(), SitemapError> {
        let location = location
            .map(str::trim)
            .filter(|location| !location.is_empty());
        let url = location.and_then(|location| resolve(self.base, location));
        let entry = url.map(|url| match kind {
            EntryKind::Page => SitemapEntry::Page(url),
            EntryKind::Sitemap => SitemapEntry::Sitemap(url),
        });
        self.counts.add(entry, self.found)
    }
}

impl Xml {
    /// Reads the markup that is whole; returns its length.
    fn read(&mut self, text: &str, entries: &mut Entries<'_>) -> Result<usize, SitemapError> {
        let mut reader = Reader::from_str(text);
        let config = reader.config_mut();
        // What was opened in an earlier piece ends here; namespaces may be declared anywhere.
        config.allow_unmatched_ends = true;
        config.check_end_names = false;
        config.allow_dangling_amp = true;
        config.expand_empty_elements = true;
        loop {
            let place = reader.buffer_position();
            match reader.read_event() {
                Ok(Event::Eof) => return Ok(text.len()),
                Ok(event) => self.see(event, entries)?,
                Err(XmlError::Syntax(error)) if error != SyntaxError::InvalidBangMarkup => {
                    return Ok(usize::try_from(place).unwrap_or(text.len()));
                }
                Err(_) => return Err(SitemapError::BadXml(place)),
            }
        }
    }

    fn see(&mut self, event: Event<'_>, entries: &mut Entries<'_>) -> Result<(), SitemapError> {
        match event {
            Event::Start(tag) => self.open(&tag, entries)?,
            Event::End(_) => self.close(entries)?,
            Event::Text(text) => self.push(&text.into_inner()),
            Event::CData(text) => self.push(&text.into_inner()),
            Event::GeneralRef(reference) => self.push_reference(&reference),
            // Entities of a document type are not read, and so unknown.
            Event::DocType(_)
            | Event::Empty(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::Eof => {}
        }
        Ok(())
    }

    fn open(
        &mut self,
        tag: &BytesStart<'_>,
        entries: &mut Entries<'_>,
    ) -> Result<(), SitemapError> {
        self.depth += 1;
        let name = tag.local_name();
        let name = name.as_ref();
        let Some(root) = self.root else {
            self.root = Some(match name {
                "urlset" | "sitemapindex" => Root::Sitemap,
                "rss" => Root::Rss,
                "feed" => Root::Atom,
                _ => return Err(SitemapError::NotASitemap),
            });
            return Ok(());
        };
        if self.depth == root.entry_depth() {
            self.entry = match (root, name) {
                (Root::Sitemap, "url") | (Root::Rss, "item") | (Root::Atom, "entry") => {
                    Some(EntryKind::Page)
                }
                (Root::Sitemap, "sitemap") => Some(EntryKind::Sitemap),
                _ => None,
            };
        } else if self.depth == root.entry_depth() + 1
            && let Some(kind) = self.entry
        {
            match (root, name) {
                (Root::Sitemap, "loc") | (Root::Rss, "link") => {
                    self.location = Some(String::new());
                    self.is_bad_location = false;
                }
                (Root::Atom, "link") => return add_atom_link(tag, kind, entries),
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&mut self, entries: &mut Entries<'_>) -> Result<(), SitemapError> {
        let entry_depth = self.root.map_or(0, Root::entry_depth);
        let depth = self.depth;
        self.depth = depth.saturating_sub(1);
        if depth == entry_depth {
            self.entry = None;
        } else if depth == entry_depth + 1
            && let Some(location) = self.location.take()
            && let Some(kind) = self.entry
        {
            let location = (!self.is_bad_location).then_some(location.as_str());
            return entries.add(kind, location);
        }
        Ok(())
    }

    fn push(&mut self, text: &str) {
        if let Some(location) = &mut self.location {
            if location.len() + text.len() > MAX_LOCATION {
                self.is_bad_location = true;
            } else {
                location.push_str(text);
            }
        }
    }

    fn push_reference(&mut self, reference: &BytesRef<'_>) {
        if self.location.is_none() {
            return;
        }
        let character = reference.resolve_char_ref().ok().flatten();
        if let Some(character) = character {
            self.push(character.encode_utf8(&mut [0; 4]));
        } else if let Some(text) = resolve_xml_entity(reference) {
            self.push(text);
        } else {
            self.is_bad_location = true;
        }
    }
}

/// The longest URL with the white space around it.
const MAX_LOCATION: usize = 2 * MAX_URL_LEN;

/// Adds the link of a feed's entry, if it leads to the page of the entry.
fn add_atom_link(
    tag: &BytesStart<'_>,
    kind: EntryKind,
    entries: &mut Entries<'_>,
) -> Result<(), SitemapError> {
    let value = |name: &str| {
        let attribute = tag.try_get_attribute(name).ok().flatten()?;
        attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .ok()
            .map(|value| value.into_owned())
    };
    match value("rel").as_deref() {
        None | Some("alternate") => entries.add(kind, value("href").as_deref()),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    type Read = (Vec<String>, Result<SitemapCounts, SitemapError>);

    fn read_in(body: &[u8], piece: usize) -> Read {
        let url = Url::parse("http://a.example/dir/sitemap.xml").unwrap();
        let mut reader = SitemapReader::new(&url);
        let mut entries = Vec::new();
        let mut found = |entry| {
            entries.push(match entry {
                SitemapEntry::Page(url) => String::from(url),
                SitemapEntry::Sitemap(url) => format!("sitemap {url}"),
            });
        };
        let written = body
            .chunks(piece)
            .try_for_each(|piece| reader.write(piece, &mut found));
        let result = written.and_then(|()| reader.finish(&mut found));
        (entries, result)
    }

    #[track_caller]
    fn check(body: &str, expected: &[&str], ignored: u64) {
        for piece in [usize::MAX, 1, 13] {
            let (entries, result) = read_in(body.as_bytes(), piece);
            assert_eq!(entries, expected);
            let found = expected.len() as u64;
            assert_eq!(result, Ok(SitemapCounts { found, ignored }));
        }
    }

    #[track_caller]
    fn check_error(body: &[u8], error: &SitemapError) {
        for piece in [usize::MAX, 1, 13] {
            assert_eq!(read_in(body, piece).1.as_ref(), Err(error));
        }
    }

    #[test]
    fn reads_a_sitemap() {
        let body = "\u{feff}<?xml version='1.0' encoding='UTF-8'?>
            <!-- <url><loc>http://no.example/</loc></url> > -->
            <urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:image='http://i'>
            <url><loc> http://a.example/one?a=1&amp;b=2#x </loc><lastmod>2026-01-01</lastmod></url>
            <url><image:image><image:loc>http://no.example/i.png</image:loc></image:image>
            <loc><![CDATA[http://a.example/two?<&>]]></loc></url>
            <url><priority>1</priority><loc>http://a.example/&#233;&#xe9;</loc></url>
            <loc>http://no.example/</loc><url/><url><loc/></url>
            <url><loc>ftp://a.example/</loc></url><url><loc>http://a.example/&unknown;</loc></url>
            <url><loc>three</loc></url></urlset>";
        check(
            body,
            &[
                "http://a.example/one?a=1&b=2",
                "http://a.example/two?%3C&%3E",
                "http://a.example/%C3%A9%C3%A9",
                "http://a.example/dir/three",
            ],
            3,
        );
    }

    #[test]
    fn reads_an_index_whatever_its_prefix() {
        let body = "<s:sitemapindex xmlns:s='http://www.sitemaps.org/schemas/sitemap/0.9'><s:sitemap><s:loc>http://a.example/1.xml.gz</s:loc></s:sitemap></s:sitemapindex>";
        check(body, &["sitemap http://a.example/1.xml.gz"], 0);
    }

    #[test]
    fn reads_feeds() {
        let rss = "<rss version='2.0'><channel><link>http://no.example/</link><item><title>x</title><link>http://a.example/1</link></item></channel></rss>";
        check(rss, &["http://a.example/1"], 0);
        let atom = "<feed xmlns='http://www.w3.org/2005/Atom'><link href='/no'/><entry><link href='/1?a&amp;b'/><link rel='edit' href='/no'/><link rel='alternate' href='/2'></link></entry></feed>";
        check(atom, &["http://a.example/1?a&b", "http://a.example/2"], 0);
    }

    #[test]
    fn reads_plain_text() {
        check(
            "http://a.example/1\r\n\n  https://b.example/2  \nnot a URL\nhttp://a.example/3",
            &[
                "http://a.example/1",
                "https://b.example/2",
                "http://a.example/3",
            ],
            1,
        );
    }

    #[test]
    fn unpacks_gzip_by_its_first_bytes() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder
            .write_all(b"<urlset><url><loc>http://a.example/</loc></url></urlset>")
            .unwrap();
        let packed = encoder.finish().unwrap();
        for piece in [1, 7, usize::MAX] {
            let (entries, result) = read_in(&packed, piece);
            assert_eq!((entries.len(), result.unwrap().found), (1, 1));
            assert!(matches!(
                read_in(&packed[..packed.len() - 4], piece).1,
                Err(SitemapError::Decode(_))
            ));
        }
    }

    #[test]
    fn refuses_what_is_no_sitemap() {
        for body in [
            "<!doctype html><html><body>Not found</body></html>",
            "",
            " \n",
            "<?xml version='1.0'?>",
            "hello",
            "{\"a\": 1}",
            "<svg/>",
            "\u{1}\u{2}",
        ] {
            check_error(body.as_bytes(), &SitemapError::NotASitemap);
        }
        check_error(
            &[0x89, b'P', b'N', b'G', 13, 10, 26, 10, 0, 0, 0, 13],
            &SitemapError::NotASitemap,
        );
        check_error("x\n".repeat(1000).as_bytes(), &SitemapError::NotASitemap);
        check_error(
            b"<urlset><url><loc>http://a.example/</loc></url><",
            &SitemapError::BadXml(47),
        );
        check_error(b"<urlset><url><!bad></url>", &SitemapError::BadXml(13));
    }

    #[test]
    fn does_not_expand_entities() {
        let bomb = "<!DOCTYPE urlset [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY x SYSTEM 'file:///etc/passwd'>]>
            <urlset><url><loc>http://a.example/&b;</loc></url><url><loc>&x;</loc></url><url><loc>http://a.example/1</loc></url></urlset>";
        check(bomb, &["http://a.example/1"], 2);
    }

    #[test]
    fn counts_urls_that_are_too_long() {
        let long = format!(
            "<urlset><url><loc>http://a.example/{}</loc></url><url><loc>/1</loc></url></urlset>",
            "x".repeat(50_000)
        );
        check(&long, &["http://a.example/1"], 1);
    }

    #[test]
    fn bounds_what_is_held() {
        let comment = format!("<urlset><!-- {}", "x> ".repeat(MAX_HELD));
        assert_eq!(
            read_in(comment.as_bytes(), 4096).1,
            Err(SitemapError::BadXml(8))
        );
        let line = format!("http://a.example/\n{}", "x".repeat(MAX_HELD * 2));
        assert_eq!(
            read_in(line.as_bytes(), 4096).1,
            Err(SitemapError::NotASitemap)
        );
        let deep = format!("<urlset>{}", "<url>".repeat(100_000));
        assert_eq!(read_in(deep.as_bytes(), 4096).1.unwrap().found, 0);
    }

    #[test]
    fn ends_an_endless_sitemap() {
        let url = Url::parse("http://a.example/sitemap.xml").unwrap();
        let mut reader = SitemapReader::new(&url);
        let mut count = 0_u64;
        let entry = format!(
            "<url><loc>http://a.example/</loc><x>{}</x></url>",
            "x".repeat(4_000)
        );
        let mut result = reader.write(b"<urlset>", &mut |_| ());
        let mut written = 0;
        while result.is_ok() {
            result = reader.write(entry.as_bytes(), &mut |_| count += 1);
            written += entry.len() as u64;
        }
        assert_eq!(result, Err(SitemapError::TooLong));
        assert!(written > MAX_BYTES && written < MAX_BYTES + 10_000 && count > 50_000);
        assert!(reader.content.held.capacity() < 4 * MAX_HELD);

        let mut counts = SitemapCounts {
            found: MAX_ENTRIES - 1,
            ignored: 0,
        };
        assert_eq!(counts.add(None, &mut |_| ()), Ok(()));
        assert_eq!(
            counts.add(None, &mut |_| ()),
            Err(SitemapError::TooManyEntries)
        );
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..2_000), piece in 1_usize..100) {
            let _ = read_in(&body, piece);
        }

        #[test]
        fn any_split_gives_the_same_entries(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "<urlset>", "<sitemapindex>", "<url>", "</url>", "<loc>", "</loc>", "http://a.example/", "x", "&amp;", "&", ";", "<", ">",
                "<!--", "-->", "<![CDATA[", "]]>", "<?x", "?>", "<!DOCTYPE x [", "]>", "'", "\"", "=", " ", "\n", "é", "</", "/>",
            ]), 0..50),
            len in 1_usize..30,
        ) {
            let body = format!("<urlset>{}", pieces.concat());
            prop_assert_eq!(read_in(body.as_bytes(), len), read_in(body.as_bytes(), usize::MAX));
        }
    }
}
