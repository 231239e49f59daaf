//! File names for URLs.
//!
//! A name is the host, then the path's segments, as `wget` makes them, and is safe on every system: made
//! of letters, digits and a few marks, everything else as `%XX`. No segment is empty, is `.` or `..`,
//! starts with a dot or a dash, ends with a dot, or is the name of a device on Windows. Segments and
//! whole names that are too long are cut, and get a hash of what they stand for.
//!
//! Different URLs may still have one name: `/a` of http and of https, `/A` and `/a` on a system that
//! does not tell them apart. So there is a list of candidates, the later ones with a hash of the URL,
//! and the folder takes the first one that is free.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use url::Url;

/// The names a URL may have, best first. They are relative, with `/` between segments; the first
/// segment is the host's folder.
pub(super) fn candidates(url: &Url, content_type: Option<&str>) -> [String; 4] {
    let parts = NameParts::new(url, content_type);
    let hash = hex_hash(url.as_str());
    let host = host_folder(url);
    let below = |folder: &str, hash: &str| format!("{folder}/{}", parts.file(hash));
    let plain = match parts.fits(&host) {
        true => below(&parts.folder(&host), ""),
        false => below(&host, &hash[..16]),
    };
    let in_place = match parts.fits(&host) {
        true => below(&parts.folder(&host), &hash[..16]),
        false => below(&host, &hash[..24]),
    };
    [
        plain,
        in_place,
        below(&host, &hash[..32]),
        below(&host, &hash),
    ]
}

/// Two names with one folded name may be the same file.
pub(super) fn fold(name: &str) -> String {
    match name.is_ascii() {
        true => name.to_ascii_lowercase(),
        // Upper case first: some letters have a common upper case only.
        false => name.to_uppercase().to_lowercase(),
    }
}

/// Could a name have been made here? A name of an index is used only if so.
pub(super) fn is_safe(name: &str) -> bool {
    name.len() <= MAX_NAME + MAX_SEGMENT
        && name.contains('/')
        && name.split('/').all(|segment| {
            let is_kept = |c: char| c == '%' || is_kept(c);
            !segment.is_empty()
                && segment.len() <= MAX_SEGMENT
                && segment.chars().all(is_kept)
                && !segment.starts_with(['.', '-'])
                && !segment.ends_with('.')
                && !is_device(segment)
        })
}

/// The name of a URL's file, in parts.
struct NameParts {
    folders: Vec<String>,
    stem: String,
    /// With its dot; empty if there is none.
    extension: String,
}

impl NameParts {
    fn new(url: &Url, content_type: Option<&str>) -> Self {
        let mut segments: Vec<&str> = url.path().split('/').skip(1).collect();
        let last = segments.pop().unwrap_or_default();
        let (mut stem, extension) = match split_extension(last) {
            Some((stem, extension)) => (stem.to_owned(), format!(".{extension}")),
            None => (last.to_owned(), type_extension(content_type).to_owned()),
        };
        let mut extension = escape(&extension);
        if last.is_empty() {
            "index".clone_into(&mut stem);
            if extension.is_empty() {
                extension = ".html".to_owned();
            }
        }
        if let Some(query) = url.query() {
            _ = write!(stem, "@{query}");
        }
        Self {
            folders: segments.into_iter().map(segment).collect(),
            stem: escape(&stem),
            extension,
        }
    }

    /// Is the whole name short enough?
    fn fits(&self, host: &str) -> bool {
        let folders = self.folders.iter().map(|folder| folder.len() + 1);
        let length = host.len() + 1 + folders.sum::<usize>() + self.file("").len();
        length <= MAX_NAME && self.folders.len() <= MAX_FOLDERS
    }

    fn folder(&self, host: &str) -> String {
        let mut path = host.to_owned();
        for folder in &self.folders {
            path.push('/');
            path.push_str(folder);
        }
        path
    }

    /// The last segment, with a hash if it is not empty.
    fn file(&self, hash: &str) -> String {
        let (stem, extension) = (&self.stem, &self.extension);
        match hash {
            "" => finish(format!("{stem}{extension}"), extension),
            _ => {
                // The stem is cut so that the hash of the URL stays.
                let max = MAX_SEGMENT.saturating_sub(hash.len() + extension.len() + 2);
                finish(format!("{}~{hash}{extension}", cut(stem, max)), extension)
            }
        }
    }
}

/// One name of a folder.
fn segment(text: &str) -> String {
    finish(escape(text), "")
}

/// What a segment must not be is changed here, and a long one is cut.
fn finish(mut name: String, extension: &str) -> String {
    if name.is_empty() {
        return "_".to_owned();
    }
    if name.starts_with('.') {
        name.replace_range(..1, "%2E");
    }
    if name.starts_with('-') {
        name.replace_range(..1, "%2D");
    }
    if name.ends_with('.') {
        name.truncate(name.len() - 1);
        name.push_str("%2E");
    }
    if is_device(&name) {
        name.insert(0, '_');
    }
    if name.len() > MAX_SEGMENT {
        let hash = hex_hash(&name);
        let max = MAX_SEGMENT.saturating_sub(16 + 1 + extension.len());
        name = format!("{}~{}{extension}", cut(&name, max), &hash[..16]);
    }
    name
}

/// The folder of a host: its name, and its port if that is not the scheme's own.
fn host_folder(url: &Url) -> String {
    let host = url.host_str().unwrap_or("_").replace(['[', ']', ':'], "_");
    let host = match url.port() {
        Some(port) => format!("{host}_{port}"),
        None => host,
    };
    segment(&host)
}

/// Decodes percent escapes, and writes everything that is not kept as `%XX`.
fn escape(text: &str) -> String {
    let bytes = percent_decode(text);
    let mut escaped = String::with_capacity(text.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_kept(c) {
                true => escaped.push(c),
                false => push_escaped(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut escaped),
            }
        }
        push_escaped(chunk.invalid(), &mut escaped);
    }
    escaped
}

fn push_escaped(bytes: &[u8], escaped: &mut String) {
    for byte in bytes {
        _ = write!(escaped, "%{byte:02X}");
    }
}

/// Letters and digits of all languages, and marks that mean nothing to a shell or a file system.
/// Characters that change the direction of writing and those that combine with others are neither.
fn is_kept(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || "-_.=+,@~".contains(c),
        false => c.is_alphanumeric(),
    }
}

fn percent_decode(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = (digit(bytes.get(at + 1)), digit(bytes.get(at + 2)));
        match (byte, escape) {
            (b'%', (Some(high), Some(low))) => {
                decoded.push(u8::try_from(high * 16 + low).expect("two digits are a byte"));
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

/// The stem and the extension of a segment that has one: up to eight letters and digits.
fn split_extension(segment: &str) -> Option<(&str, &str)> {
    let (stem, extension) = segment.rsplit_once('.')?;
    let is_extension = (1..=8).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && extension.bytes().any(|byte| byte.is_ascii_alphabetic());
    (is_extension && !stem.is_empty()).then_some((stem, extension))
}

/// The extension for a type of content, with its dot; empty if none is known.
fn type_extension(content_type: Option<&str>) -> &'static str {
    let essence = content_type.and_then(|text| text.split(';').next());
    let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
    let known = TYPE_EXTENSIONS.iter().find(|(name, _)| *name == essence);
    known.map_or("", |(_, extension)| extension)
}

const TYPE_EXTENSIONS: &[(&str, &str)] = &[
    ("application/atom+xml", ".atom"),
    ("application/gzip", ".gz"),
    ("application/javascript", ".js"),
    ("application/json", ".json"),
    ("application/ld+json", ".jsonld"),
    ("application/pdf", ".pdf"),
    ("application/rss+xml", ".rss"),
    ("application/wasm", ".wasm"),
    ("application/xhtml+xml", ".xhtml"),
    ("application/xml", ".xml"),
    ("application/zip", ".zip"),
    ("audio/mpeg", ".mp3"),
    ("font/woff2", ".woff2"),
    ("image/avif", ".avif"),
    ("image/gif", ".gif"),
    ("image/jpeg", ".jpg"),
    ("image/png", ".png"),
    ("image/svg+xml", ".svg"),
    ("image/webp", ".webp"),
    ("image/x-icon", ".ico"),
    ("text/css", ".css"),
    ("text/csv", ".csv"),
    ("text/html", ".html"),
    ("text/javascript", ".js"),
    ("text/markdown", ".md"),
    ("text/plain", ".txt"),
    ("text/xml", ".xml"),
    ("video/mp4", ".mp4"),
    ("video/webm", ".webm"),
];

/// Is it the name of a device on Windows, with or without an extension?
fn is_device(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or_default();
    let stem = stem.to_ascii_uppercase();
    let numbered = ["COM", "LPT"]
        .iter()
        .find_map(|name| stem.strip_prefix(name));
    match numbered {
        Some(number) => {
            let mut chars = number.chars();
            let first = chars.next();
            first.is_some_and(|c| c.is_ascii_digit() || "¹²³".contains(c)) && chars.next().is_none()
        }
        None => matches!(&*stem, "CON" | "PRN" | "AUX" | "NUL"),
    }
}

/// The start of a text, at most so many bytes.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn hex_hash(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// File systems take 255 bytes, some of them (eCryptfs) 143.
const MAX_SEGMENT: usize = 120;
/// Windows takes 260 UTF-16 units for a whole path, that of the folder included.
const MAX_NAME: usize = 200;
/// Each folder costs a system call, and a URL may have thousands of slashes.
const MAX_FOLDERS: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(url: &str, content_type: &str) -> String {
        let url = Url::parse(url).unwrap();
        let [first, ..] = candidates(&url, Some(content_type));
        first
    }

    #[test]
    fn names_follow_the_url() {
        let names = [
            ("http://a.example/", "text/html"),
            ("http://a.example/docs/", "text/html; charset=utf-8"),
            ("http://a.example/feed/", "application/rss+xml"),
            ("http://a.example/docs/page", "text/html"),
            ("http://a.example/docs/page.html", "text/html"),
            ("http://a.example/v1.2", "text/html"),
            ("http://a.example/logo.png?v=3", "image/png"),
            ("http://a.example/item?id=1&x=y", "application/json"),
            ("http://a.example/data", "application/octet-stream"),
            ("https://b.example:8443/x.txt", "text/plain"),
            ("http://[::1]:8080/x.txt", "text/plain"),
            ("http://a.example/%D0%BC%D0%B8%D1%80.html", "text/html"),
        ];
        let names: Vec<String> = names.iter().map(|(url, kind)| name(url, kind)).collect();
        insta::assert_snapshot!(names.join("\n"), @"
        a.example/index.html
        a.example/docs/index.html
        a.example/feed/index.rss
        a.example/docs/page.html
        a.example/docs/page.html
        a.example/v1.2.html
        a.example/logo@v=3.png
        a.example/item@id=1%26x=y.json
        a.example/data
        b.example_8443/x.txt
        ___1__8080/x.txt
        a.example/мир.html
        ");
    }

    #[test]
    fn hostile_segments_are_escaped() {
        let urls = [
            "http://a.example/..%2f..%2fetc/passwd",
            "http://a.example/%2e%2e%5c%2e%2e%5cboot.ini",
            "http://a.example/a%00b%0ac",
            "http://a.example/%E2%80%AEgnp.exe",
            "http://a.example/-rf",
            "http://a.example/.htaccess",
            "http://a.example/end./end%20/x",
            "http://a.example/CON/nul.txt",
            "http://a.example/com1.tar.gz",
            "http://a.example/LPT%C2%B9.txt",
            "http://a.example//double///slash",
            "http://a.example/%ff%fe",
            "http://a.example/a:b*c?d|e<f>",
            "http://.tidegate-index.jsonl/x",
        ];
        let names: Vec<String> = urls.iter().map(|url| name(url, "")).collect();
        insta::assert_snapshot!(names.join("\n"), @"
        a.example/%2E.%2F..%2Fetc/passwd
        a.example/%2E.%5C..%5Cboot.ini
        a.example/a%00b%0Ac
        a.example/%E2%80%AEgnp.exe
        a.example/%2Drf
        a.example/%2Ehtaccess
        a.example/end%2E/end%20/x
        a.example/_CON/_nul.txt
        a.example/_com1.tar.gz
        a.example/_LPT¹.txt
        a.example/_/double/_/_/slash
        a.example/%FF%FE
        a.example/a%3Ab%2Ac@d%7Ce%3Cf%3E
        %2Etidegate-index.jsonl/x
        ");
    }

    #[test]
    fn long_names_are_cut_and_get_a_hash() {
        let long = "x".repeat(300);
        let file = name(&format!("http://a.example/{long}.html"), "text/html");
        assert!(file.ends_with(".html") && file.contains("xxx~"), "{file}");
        let deep = name(
            &format!("http://a.example{}/page.html", "/d".repeat(500)),
            "",
        );
        assert!(deep.starts_with("a.example/page~"), "{deep}");
        let other = name(&format!("http://a.example/{long}y.html"), "text/html");
        assert_ne!(file, other);
    }

    proptest! {
        #[test]
        fn names_are_safe_for_any_url(path in "[\\x21-\\x7e]{0,80}", long in 0_usize..400, deep in 0_usize..40) {
            let text = format!("http://a.example{}/{path}{}", "/f.".repeat(deep), "z".repeat(long));
            if let Ok(url) = Url::parse(&text) {
                for name in candidates(&url, Some("text/html")) {
                    prop_assert!(is_safe(&name), "{name}");
                    prop_assert!(name.starts_with("a.example/"));
                }
            }
        }

        #[test]
        fn segments_of_any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut path = String::new();
            push_escaped(&bytes, &mut path);
            let url = Url::parse(&format!("http://a.example/{path}/{path}")).unwrap();
            for name in candidates(&url, None) {
                prop_assert!(is_safe(&name), "{name}");
            }
        }
    }
}
