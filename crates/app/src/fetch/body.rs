//! The body of a response, read piece by piece: decoded, hashed, searched and stored as it comes.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName};
use http_body_util::BodyExt;
use ring::digest;
use tokio::time::Instant;

use super::decode::{DecodeError, Decoder};
use super::engine::Engine;
use super::folder::{BodyFile, StoredBody};
use super::item::{FetchItem, Purpose};
use super::page::{Page, PageReader};
use super::record::UrlError;
use super::robots::MAX_ROBOTS_LEN;
use super::sitemap::{SitemapEntry, SitemapError, SitemapReader};
use crate::exchange::{BodyError, UpstreamBody, declared_length};

/// A body that is being read.
pub(super) struct Body {
    decoder: Option<Decoder>,
    max_bytes: u64,
    received: u64,
    sink: Sink,
}

/// What the decoded pieces go to.
struct Sink {
    bytes: u64,
    digest: digest::Context,
    page: Option<PageReader>,
    sitemap: Option<SitemapReader>,
    robots: Option<Vec<u8>>,
    file: Option<BodyFile>,
    problem: Option<BodyProblem>,
}

/// What was read of a body.
#[derive(Debug, Default)]
pub(super) struct ReadBody {
    pub(super) bytes: u64,
    pub(super) sha256: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) page: Option<Page>,
    pub(super) robots: Option<Vec<u8>>,
    pub(super) file: Option<String>,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyProblem {
    #[error(transparent)]
    Broken(BodyError),
    #[error("the body came slower than 1 KiB/s")]
    Slow,
    #[error("the body is longer than {max_bytes} bytes, which is as much as is fetched")]
    TooLarge { max_bytes: u64 },
    #[error(transparent)]
    Decode(DecodeError),
    #[error(transparent)]
    Sitemap(SitemapError),
    #[error("the body cannot be stored: {0}")]
    Store(io::Error),
}

impl BodyProblem {
    pub(super) fn error(&self) -> UrlError {
        match self {
            Self::Broken(_) | Self::Slow => UrlError::Truncated,
            Self::TooLarge { .. } | Self::Decode(DecodeError::TooLarge { .. }) => {
                UrlError::BodyTooLarge
            }
            Self::Decode(_) => UrlError::BadEncoding,
            Self::Sitemap(_) => UrlError::BadSitemap,
            Self::Store(_) => UrlError::NotStored,
        }
    }
}

/// Slower bodies are ended, after some time for a slow start.
const MIN_BYTES_PER_SECOND: u64 = 1024;
const SLOW_START: Duration = Duration::from_secs(30);

/// As much of a robots.txt as is read: a byte more than counts shows whether the last line ends there.
const MAX_ROBOTS: usize = MAX_ROBOTS_LEN + 1;

impl Body {
    pub(super) fn new(
        engine: &Engine,
        item: &FetchItem,
        headers: &HeaderMap,
    ) -> Result<Self, BodyProblem> {
        let is_robots = item.is_robots();
        let max_bytes = match is_robots {
            true => engine.max_body.max(MAX_ROBOTS as u64),
            false => engine.max_body,
        };
        if !is_robots && declared_length(headers).is_some_and(|length| length > max_bytes) {
            return Err(BodyProblem::TooLarge { max_bytes });
        }
        let encoding = text(headers, CONTENT_ENCODING);
        let decoder = encoding
            .as_deref()
            .map(|encoding| Decoder::new(Some(encoding), max_bytes))
            .transpose()
            .map_err(BodyProblem::Decode)?;
        let (mut page, mut sitemap, mut robots, mut file) = (None, None, None, None);
        match &item.purpose {
            Purpose::Page(_) => {
                page = PageReader::new(&item.url, text(headers, CONTENT_TYPE).as_deref());
                if !engine.needs_links(item) {
                    page = page.map(PageReader::title_only);
                }
                file = engine.begin_file(&item.url).map_err(BodyProblem::Store)?;
            }
            Purpose::Sitemap(_) => sitemap = Some(SitemapReader::new(&item.url)),
            Purpose::Robots(..) => robots = Some(Vec::new()),
        }
        Ok(Self {
            decoder,
            max_bytes,
            received: 0,
            sink: Sink {
                bytes: 0,
                digest: digest::Context::new(&digest::SHA256),
                page,
                sitemap,
                robots,
                file,
                problem: None,
            },
        })
    }

    /// Reads the body to its end, or as much as is needed.
    pub(super) async fn read(
        &mut self,
        engine: &Rc<Engine>,
        item: &FetchItem,
        mut body: UpstreamBody,
    ) -> Result<(), BodyProblem> {
        let mut found = |entry| engine.found_in_sitemap(item, entry);
        let mut started = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(BodyProblem::Broken)?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            self.received += piece.len() as u64;
            // A robots.txt is cut instead.
            if self.received > self.max_bytes && self.sink.robots.is_none() {
                return Err(BodyProblem::TooLarge {
                    max_bytes: self.max_bytes,
                });
            }
            let started = started.get_or_insert_with(Instant::now);
            let elapsed = started.elapsed();
            if elapsed > SLOW_START && self.received < elapsed.as_secs() * MIN_BYTES_PER_SECOND {
                return Err(BodyProblem::Slow);
            }
            let written = self.write(&piece, &mut found);
            if self.sink.is_full() {
                return Ok(());
            }
            written?;
        }
        self.end(&mut found)
    }

    fn write(
        &mut self,
        piece: &[u8],
        found: &mut impl FnMut(SitemapEntry),
    ) -> Result<(), BodyProblem> {
        let sink = &mut self.sink;
        match &mut self.decoder {
            None => sink.write(piece, found),
            Some(decoder) => decoder
                .write(piece, &mut |decoded| sink.write(decoded, found))
                .map_err(BodyProblem::Decode)?,
        }
        sink.problem.take().map_or(Ok(()), Err)
    }

    fn end(&mut self, found: &mut impl FnMut(SitemapEntry)) -> Result<(), BodyProblem> {
        let sink = &mut self.sink;
        if let Some(decoder) = self.decoder.take() {
            decoder.finish().map_err(BodyProblem::Decode)?;
        }
        if let Some(sitemap) = sink.sitemap.take() {
            sitemap.finish(found).map_err(BodyProblem::Sitemap)?;
        }
        sink.problem.take().map_or(Ok(()), Err)
    }

    /// What was read, after the body's end.
    pub(super) fn finish(self, headers: &HeaderMap) -> Result<ReadBody, BodyProblem> {
        let Sink {
            bytes,
            digest,
            page,
            robots,
            file,
            ..
        } = self.sink;
        let sha256 = hexadecimal(digest.finish().as_ref());
        let content_type = text(headers, CONTENT_TYPE);
        let page = page.map(PageReader::finish);
        let file = file.map(|file| {
            file.commit(StoredBody {
                content_type: content_type.clone(),
                etag: text(headers, ETAG),
                last_modified: text(headers, LAST_MODIFIED),
                sha256: sha256.clone(),
                title: page.as_ref().and_then(|page| page.title.clone()),
                bytes,
            })
        });
        Ok(ReadBody {
            bytes,
            sha256: Some(sha256),
            content_type,
            page,
            robots,
            file: file.transpose().map_err(BodyProblem::Store)?,
        })
    }
}

impl Sink {
    fn write(&mut self, piece: &[u8], found: &mut impl FnMut(SitemapEntry)) {
        if self.problem.is_some() {
            return;
        }
        self.bytes += piece.len() as u64;
        self.digest.update(piece);
        if let Some(page) = &mut self.page {
            page.write(piece);
        }
        if let Some(robots) = &mut self.robots {
            let room = MAX_ROBOTS - robots.len();
            robots.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        if let Some(sitemap) = &mut self.sitemap
            && let Err(error) = sitemap.write(piece, found)
        {
            self.problem = Some(BodyProblem::Sitemap(error));
        }
        if let Some(file) = &mut self.file
            && let Err(error) = file.write(piece)
        {
            self.problem = Some(BodyProblem::Store(error));
        }
    }

    /// Is nothing more needed?
    fn is_full(&self) -> bool {
        self.robots
            .as_ref()
            .is_some_and(|robots| robots.len() >= MAX_ROBOTS)
    }
}

/// A header's value, if it is text.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]));
    digits.collect()
}
