//! The console's files: the page, which is the same for every path of the console, and what it
//! loads.
//!
//! They are embedded as they are written, without a build step, and hold no data: whatever a page
//! shows comes by calls that need a credential. So they are served without one. Browsers revalidate
//! them by `ETag`, which is a digest of the content, and get them compressed.
//!
//! In debug builds the environment variable `CONSOLE_FILES` names a folder from which the files are
//! read at every request, for work on the console without rebuilding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use super::problem::Refused;

/// The paths of pages, as routes.
pub(super) const PAGES: [&str; 10] = [
    "/",
    "/login",
    "/gates",
    "/gates/{*key}",
    "/pools",
    "/operations",
    "/operations/{id}",
    "/jobs",
    "/jobs/{id}",
    "/simulate",
];

/// The route of files.
pub(super) const FILES: &str = "/console/{*name}";

const FILES_PATH: &str = "/console/";

/// Is this the path of a page?
pub(super) fn is_page(path: &str) -> bool {
    PAGES.iter().any(|page| match page.split_once('{') {
        None => path == *page,
        Some((start, parameter)) => path.strip_prefix(start).is_some_and(|rest| {
            !rest.is_empty() && (parameter.starts_with('*') || !rest.contains('/'))
        }),
    })
}

/// Is this the path of a file?
pub(super) fn is_file(path: &str) -> bool {
    path.starts_with(FILES_PATH)
}

/// The page. What it shows is decided by its script, from the path.
pub(super) async fn page(headers: HeaderMap) -> Response {
    respond("index.html", &headers)
}

/// The page that signs a browser in
#[utoipa::path(
    get, operation_id = "showSignIn", path = "/login", tag = "console", security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"))
)]
pub(super) async fn sign_in_page(headers: HeaderMap) -> Response {
    page(headers).await
}

/// A file of the console.
pub(super) async fn file(uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().strip_prefix(FILES_PATH).unwrap_or_default();
    respond(name, &headers)
}

fn respond(name: &str, headers: &HeaderMap) -> Response {
    let Some(file) = ConsoleFile::find(name) else {
        return Refused::not_found("the console has no such file").into_response();
    };
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|tags| {
        let mut tags = tags.as_bytes().split(|byte| *byte == b',');
        tags.any(|tag| matches(tag.trim_ascii(), file.tag.as_bytes()))
    });
    let compressed = file.compressed.filter(|_| accepts_gzip(headers));
    let mut answer = if is_known {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        let is_compressed = compressed.is_some();
        let mut answer = Response::new(Body::from(compressed.unwrap_or(file.content)));
        let kind = HeaderValue::from_static(content_type(name));
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        if is_compressed {
            let gzip = HeaderValue::from_static("gzip");
            answer.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        answer
    };
    let headers = answer.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ETAG, file.tag);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    answer
}

/// Does a tag of `If-None-Match` name this content, compressed or not?
fn matches(tag: &[u8], current: &[u8]) -> bool {
    let strong = |tag| <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag);
    tag == b"*" || strong(tag) == strong(current)
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(ACCEPT_ENCODING).iter();
    let fields = fields.filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Nothing but our own files, and text only: without a trusted type no script can write HTML.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);

/// What every response of the admin listener says to browsers, besides its own policy.
pub(super) const SAFE_HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        http::header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        http::header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// A file and the tag of its content, which is weak because it is that of both forms.
#[derive(Clone, Debug)]
struct ConsoleFile {
    content: Bytes,
    compressed: Option<Bytes>,
    tag: HeaderValue,
}

impl ConsoleFile {
    fn find(name: &str) -> Option<Self> {
        match &*FOLDER {
            Some(folder) => Self::read(folder, name),
            None => EMBEDDED.get(name).cloned(),
        }
    }

    /// Reads it from a folder, under the names that could be embedded.
    fn read(folder: &std::path::Path, name: &str) -> Option<Self> {
        let is_plain = name.split('/').all(|part| {
            let mut bytes = part.bytes();
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !part.starts_with('.') && !part.is_empty() && bytes.all(allowed)
        });
        let is_served = content_type(name) != "application/octet-stream";
        if !is_plain || !is_served {
            return None;
        }
        Some(Self::new(std::fs::read(folder.join(name)).ok()?))
    }

    fn new(content: impl Into<Cow<'static, [u8]>>) -> Self {
        let content = match content.into() {
            Cow::Borrowed(content) => Bytes::from_static(content),
            Cow::Owned(content) => Bytes::from(content),
        };
        let digest = ring::digest::digest(&ring::digest::SHA256, &content);
        let digits: String = digest.as_ref()[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let tag = HeaderValue::try_from(format!("W/\"{digits}\"")).expect("digits in quotes");
        Self {
            content,
            compressed: None,
            tag,
        }
    }

    fn compressed(mut self) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let written = encoder
            .write_all(&self.content)
            .and_then(|()| encoder.finish());
        self.compressed = written.ok().map(Bytes::from);
        self
    }
}

/// The folder to read from instead, in debug builds.
static FOLDER: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let folder = std::env::var_os("CONSOLE_FILES").filter(|folder| !folder.is_empty());
    folder.filter(|_| cfg!(debug_assertions)).map(PathBuf::from)
});

static EMBEDDED: LazyLock<BTreeMap<&'static str, ConsoleFile>> = LazyLock::new(|| {
    let files = FILE_LIST.iter();
    files
        .map(|&(name, content)| (name, ConsoleFile::new(content).compressed()))
        .collect()
});

/// Made by `build.rs` from the folder `console`.
const FILE_LIST: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn knows_the_paths_of_pages() {
        for path in [
            "/",
            "/login",
            "/gates",
            "/gates/a",
            "/gates/llm/a",
            "/gates/llm%2Fa",
            "/pools",
            "/operations/op_1",
            "/jobs/job_1",
            "/simulate",
        ] {
            assert!(is_page(path), "{path}");
        }
        for path in [
            "",
            "//",
            "//evil.example.com",
            "/gates/",
            "/operations/",
            "/operations/a/b",
            "/jobs/a/b",
            "/console/main.js",
            "/api/v1/gates",
            "/healthz",
            "/r/slug",
            "/x",
        ] {
            assert!(!is_page(path), "{path}");
        }
    }

    /// The list is what is in the folder, tests and settings of tools aside.
    #[test]
    fn embeds_every_file_of_the_folder_as_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                let is_tool = ["test", "node_modules"].contains(&name)
                    || [".json", ".d.ts"].iter().any(|end| name.ends_with(end));
                match path.is_dir() {
                    _ if is_tool => {}
                    true => folders.push(path),
                    false => found.push(name.to_owned()),
                }
            }
        }
        found.sort();
        let listed: Vec<&str> = FILE_LIST.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, found);
        for (name, content) in FILE_LIST {
            assert_eq!(*content, std::fs::read(root.join(name)).unwrap(), "{name}");
        }
        assert!(listed.contains(&"index.html") && listed.contains(&"main.js"));
    }

    #[test]
    fn reads_only_plain_names_from_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("views")).unwrap();
        for name in ["a.js", "views/b.js", "secret.txt", ".hidden.js"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let root = folder.path().join("views");
        let read = |name: &str| ConsoleFile::read(&root, name).map(|file| file.content);
        assert_eq!(read("b.js").as_deref(), Some("views/b.js".as_bytes()));
        for name in ["../a.js", "/b.js", "b.js/", "%2e%2e/a.js", "c.js", ""] {
            assert_eq!(read(name), None, "{name}");
        }
        for name in ["secret.txt", ".hidden.js"] {
            assert!(ConsoleFile::read(folder.path(), name).is_none(), "{name}");
        }
        assert!(ConsoleFile::read(folder.path(), "views/b.js").is_some());
    }

    #[test]
    fn compares_tags_of_conditional_requests() {
        assert!(matches(b"\"a\"", b"\"a\""));
        assert!(matches(b"W/\"a\"", b"\"a\""));
        assert!(matches(b"\"a\"", b"W/\"a\""));
        assert!(matches(b"*", b"\"a\""));
        assert!(!matches(b"\"b\"", b"\"a\""));
        assert!(!matches(b"a", b"\"a\""));
    }

    #[test]
    fn sends_files_compressed_to_clients_that_accept_it() {
        let headers = |encoding: &'static str| {
            let value = HeaderValue::from_static(encoding);
            HeaderMap::from_iter([(ACCEPT_ENCODING, value)])
        };
        for encoding in ["gzip", "br, GZIP;q=0.5, *;q=0"] {
            let response = respond("main.js", &headers(encoding));
            assert_eq!(response.headers()[CONTENT_ENCODING], "gzip", "{encoding}");
        }
        for encoding in ["", "br", "gzip;q=0", "x-gzip"] {
            let response = respond("main.js", &headers(encoding));
            assert_eq!(response.headers().get(CONTENT_ENCODING), None, "{encoding}");
            assert_eq!(response.headers()[VARY], "accept-encoding");
        }
        let file = &EMBEDDED["main.js"];
        let compressed = file.compressed.as_ref().unwrap();
        let mut read = Vec::new();
        std::io::copy(
            &mut flate2::read::GzDecoder::new(&compressed[..]),
            &mut read,
        )
        .unwrap();
        assert_eq!(read, file.content);
        assert!(compressed.len() * 2 < file.content.len());
    }
}
