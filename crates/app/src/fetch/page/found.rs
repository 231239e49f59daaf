//! What was found on a page: links, resources and the title, each within its bound.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::BuildHasher;

use encoding_rs::{Encoding, UTF_8};
use lol_html::html_content::TextChunk;
use url::Url;

use super::charset::charset_parameter;
use super::entities::{self, Place};
use super::{MAX_LINKS, MAX_RESOURCES, MAX_TITLE, Page, Resource};
use crate::fetch::trackers::ResourceKind;
use crate::fetch::url::{MAX_URL_LEN, usable};

/// What was found so far.
pub(super) struct Found {
    pub(super) page: Page,
    pub(super) is_title_only: bool,
    /// What links are relative to.
    base: Url,
    has_base: bool,
    pub(super) encoding: &'static Encoding,
    /// Whether a `meta` element may still say what the encoding is.
    pub(super) may_declare: bool,
    /// How many templates are open.
    pub(super) templates: usize,
    title: String,
    /// Whether the title that comes next is the one of an SVG picture.
    pub(super) is_picture_title: bool,
    pub(super) title_state: TitleState,
    pub(super) noscript: String,
    pub(super) is_nofollow: bool,
    seen: HashSet<u64, rapidhash::fast::RandomState>,
    /// Bytes that the URLs may still take.
    room: usize,
}

/// Where the title is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TitleState {
    Awaited,
    Open,
    Read,
}

/// The most that the URLs of one page take, in bytes: 10,000 links of 200 bytes.
pub(super) const MAX_URL_BYTES: usize = 2 << 20;

/// How much of a title is read; with its character references it may be longer than shown.
const MAX_RAW_TITLE: usize = 8 * MAX_TITLE;

impl Found {
    pub(super) fn new(url: &Url) -> Self {
        Self {
            page: Page::default(),
            is_title_only: false,
            base: url.clone(),
            has_base: false,
            encoding: UTF_8,
            may_declare: false,
            templates: 0,
            title: String::new(),
            is_picture_title: false,
            title_state: TitleState::Awaited,
            noscript: String::new(),
            is_nofollow: false,
            seen: HashSet::default(),
            room: MAX_URL_BYTES,
        }
    }

    /// Forgets which elements are open.
    pub(super) fn restart(&mut self) {
        self.page.is_truncated = true;
        self.templates = 0;
        self.noscript.clear();
        self.finish_title();
    }

    pub(super) fn add_anchor(&mut self, href: Option<&str>, rel: Option<&str>) {
        if !has_word(rel, "nofollow") {
            self.add_link(href);
        }
    }

    /// Looks at a `link` element: a page of a series, the page's real address, or something to load.
    pub(super) fn add_head_link(
        &mut self,
        href: Option<&str>,
        rel: Option<&str>,
        loaded_as: Option<&str>,
    ) {
        let is = |word| has_word(rel, word);
        if is("next") || is("prev") || is("canonical") {
            return self.add_link(href);
        }
        let kind = if is("stylesheet") {
            ResourceKind::Style
        } else if is("modulepreload") {
            ResourceKind::Script
        } else if is("icon") || is("apple-touch-icon") {
            ResourceKind::Image
        } else if is("preload") {
            preloaded(loaded_as)
        } else if is("manifest") {
            ResourceKind::Other
        } else {
            return;
        };
        self.add_resource(href, kind);
    }

    pub(super) fn set_base(&mut self, href: Option<&str>) {
        // Only the first counts, whatever it says.
        if !self.has_base {
            self.has_base = true;
            if let Some(url) = href.and_then(|href| self.resolve(href)) {
                self.base = url;
            }
        }
    }

    pub(super) fn see_meta(&mut self, attribute: impl Fn(&str) -> Option<String>) {
        let is = |value: Option<&str>, word: &str| {
            value.is_some_and(|value| value.trim().eq_ignore_ascii_case(word))
        };
        let charset = attribute("charset");
        let http_equiv = attribute("http-equiv");
        let content = attribute("content");
        let content = content.as_deref();
        if self.may_declare {
            let declared = match &charset {
                Some(label) => Encoding::for_label_no_replacement(label.as_bytes()),
                None if is(http_equiv.as_deref(), "content-type") => {
                    content.and_then(|content| content.split(';').find_map(charset_parameter))
                }
                None => None,
            };
            if let Some(encoding) = declared.filter(|encoding| encoding.is_ascii_compatible()) {
                self.encoding = encoding;
                self.may_declare = false;
            }
        }
        if is(http_equiv.as_deref(), "refresh") {
            self.add_link(content.and_then(refresh_target));
        }
        if is(attribute("name").as_deref(), "robots") {
            let mut words = content.unwrap_or_default().split([',', ' ']).map(str::trim);
            self.is_nofollow |= words.any(|word| {
                word.eq_ignore_ascii_case("nofollow") || word.eq_ignore_ascii_case("none")
            });
        }
    }

    pub(super) fn see_title(&mut self, text: &TextChunk<'_>) {
        if self.title_state != TitleState::Open {
            return;
        }
        let part = text.as_str();
        let room = MAX_RAW_TITLE.saturating_sub(self.title.len());
        self.title.push_str(&part[..part.floor_char_boundary(room)]);
        if text.last_in_text_node() {
            self.finish_title();
        }
    }

    pub(super) fn finish_title(&mut self) {
        let title = std::mem::take(&mut self.title);
        let title = collapse(&entities::decode(&title, Place::Text));
        if !title.is_empty() {
            self.page.title = Some(title);
            self.title_state = TitleState::Read;
        }
    }

    pub(super) fn add_link(&mut self, href: Option<&str>) {
        if let Some(url) = href.and_then(|href| self.resolve(href))
            && self.is_new(&url, 0)
        {
            if self.page.links.len() < MAX_LINKS && self.has_room(&url) {
                self.page.links.push(url);
            } else {
                self.page.is_truncated = true;
            }
        }
    }

    pub(super) fn add_resource(&mut self, source: Option<&str>, kind: ResourceKind) {
        if let Some(url) = source.and_then(|source| self.resolve(source))
            && self.is_new(&url, 1 + kind as u8)
        {
            if self.page.resources.len() < MAX_RESOURCES && self.has_room(&url) {
                self.page.resources.push(Resource { url, kind });
            } else {
                self.page.is_truncated = true;
            }
        }
    }

    /// Whether the URL was not seen yet, in this use. What is not stored any more is always new.
    fn is_new(&mut self, url: &Url, usage: u8) -> bool {
        let hash = self.seen.hasher().hash_one((url.as_str(), usage));
        if self.seen.len() < MAX_LINKS + MAX_RESOURCES {
            self.seen.insert(hash)
        } else {
            !self.seen.contains(&hash)
        }
    }

    fn has_room(&mut self, url: &Url) -> bool {
        match self.room.checked_sub(url.as_str().len()) {
            Some(room) => self.room = room,
            None => return false,
        }
        true
    }

    /// Resolves the value of an attribute. The query of a link is encoded like the page.
    fn resolve(&self, value: &str) -> Option<Url> {
        if value.len() > MAX_ATTRIBUTE {
            return None;
        }
        let reference = entities::decode(value, Place::Attribute);
        let encoding = self.encoding.output_encoding();
        let encode = query_encoder(encoding);
        let mut options = Url::options().base_url(Some(&self.base));
        if encoding != UTF_8 {
            options = options.encoding_override(Some(&encode));
        }
        usable(options.parse(&reference).ok()?)
    }
}

fn query_encoder(encoding: &'static Encoding) -> impl Fn(&str) -> Cow<'_, [u8]> {
    move |text| encoding.encode(text).0
}

/// The longest attribute that may hold a URL: character references make it longer.
const MAX_ATTRIBUTE: usize = 2 * MAX_URL_LEN;

/// Whether an attribute's value has the word among others.
fn has_word(value: Option<&str>, word: &str) -> bool {
    value.is_some_and(|value| {
        value
            .split_ascii_whitespace()
            .any(|part| part.eq_ignore_ascii_case(word))
    })
}

/// What a preloaded resource is, by its attribute `as`.
fn preloaded(loaded_as: Option<&str>) -> ResourceKind {
    match loaded_as.unwrap_or_default().to_ascii_lowercase().as_str() {
        "script" | "worker" => ResourceKind::Script,
        "style" => ResourceKind::Style,
        "image" => ResourceKind::Image,
        "font" => ResourceKind::Font,
        "audio" | "video" | "track" => ResourceKind::Media,
        "document" => ResourceKind::Frame,
        "embed" | "object" => ResourceKind::Object,
        _ => ResourceKind::Other,
    }
}

/// The URL of `5; url=next.html`, in all the ways browsers accept.
pub(super) fn refresh_target(content: &str) -> Option<&str> {
    let rest = content
        .trim_start()
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let rest = rest.trim_start();
    let rest = rest.strip_prefix([';', ',']).unwrap_or(rest).trim_start();
    let target = match rest.get(..3) {
        Some(name) if name.eq_ignore_ascii_case("url") => rest[3..]
            .trim_start()
            .strip_prefix('=')
            .map_or(rest, str::trim_start),
        _ => rest,
    };
    let target = match target.chars().next() {
        Some(quote @ ('"' | '\'')) => target[1..].split(quote).next().unwrap_or_default(),
        _ => target.trim_end(),
    };
    (!target.is_empty()).then_some(target)
}

/// Puts a title on one line and cuts it.
fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_TITLE));
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if !word.is_empty() {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(word);
        }
    }
    if let Some((end, _)) = out.char_indices().nth(MAX_TITLE) {
        out.truncate(end);
        out.truncate(out.trim_end().len());
    }
    out
}
