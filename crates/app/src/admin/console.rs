//! The console's files: the page, which is the same for every path of the console, and what it
//! loads.
//!
//! They are embedded as they are written, without a build step, and hold no data: whatever a page
//! shows comes by calls that need a credential. So they are served without one. Browsers revalidate
//! them by `ETag`, which is a digest of the content.
//!
//! In debug builds the environment variable `CONSOLE_FILES` names a folder from which the files are
//! read at every request, for work on the console without rebuilding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
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
    let mut answer = if is_known {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        let mut answer = Response::new(Body::from(file.content));
        let kind = HeaderValue::from_static(content_type(name));
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    };
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ETAG, file.tag);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    answer
}

/// Does a tag of `If-None-Match` name this content? Weak tags do as well.
fn matches(tag: &[u8], current: &[u8]) -> bool {
    tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == current
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

/// A file and the tag of its content.
#[derive(Clone, Debug)]
struct ConsoleFile {
    content: Bytes,
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
        let tag = HeaderValue::try_from(format!("\"{digits}\"")).expect("digits in quotes");
        Self { content, tag }
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
        .map(|&(name, content)| (name, ConsoleFile::new(content)))
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
        assert!(matches(b"*", b"\"a\""));
        assert!(!matches(b"\"b\"", b"\"a\""));
        assert!(!matches(b"a", b"\"a\""));
    }
}
