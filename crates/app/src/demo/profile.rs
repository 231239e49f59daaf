//! A profile that several programs edit. The server stores one document with a version: a change
//! needs `If-Match` with the present version, and gets 409 otherwise.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use super::servers::{Respond, text};

/// The document and its version.
#[derive(Debug)]
pub(super) struct Profile {
    stored: Mutex<Stored>,
}

#[derive(Debug)]
struct Stored {
    version: u32,
    document: Bytes,
}

/// The document that both edits start from.
pub(super) fn base() -> Value {
    json!({
        "id": "ada",
        "name": "Ada",
        "email": "ada@example.com",
        "address": { "street": "12 St James's Square", "city": "London", "zip": "SW1Y 4JH" },
        "language": "en",
        "tier": "gold",
        "newsletter": false,
    })
}

/// The edit of the demo's operation: another name, and a phone number.
pub(super) fn ours() -> Value {
    let mut document = base();
    document["name"] = json!("Ada L.");
    document["phone"] = json!("+44 20 7946 0018");
    document
}

/// The edit of another program: another name and tier, and no postcode.
fn theirs() -> Value {
    let mut document = base();
    document["name"] = json!("A. Lovelace");
    document["tier"] = json!("platinum");
    if let Some(address) = document["address"].as_object_mut() {
        address.remove("zip");
    }
    document
}

impl Profile {
    pub(super) fn new() -> Self {
        Self {
            stored: Mutex::new(Stored {
                version: 1,
                document: bytes_of(&base()),
            }),
        }
    }

    /// Starts over with the base document, lets another program change it, and returns the tag of the
    /// version before that change.
    pub(super) fn change_elsewhere(&self) -> String {
        let mut stored = self.lock();
        stored.replace(bytes_of(&base()));
        let tag = stored.tag();
        stored.replace(bytes_of(&theirs()));
        tag
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    fn replace(&mut self, document: Bytes) {
        self.version += 1;
        self.document = document;
    }

    fn tag(&self) -> String {
        format!("\"v{}\"", self.version)
    }
}

impl Respond for Profile {
    fn respond(&self, request: &Request<Bytes>) -> (Response<Bytes>, Duration) {
        let mut stored = self.lock();
        let tag = request.headers().get(header::IF_MATCH);
        let (status, body) = match *request.method() {
            Method::GET => (StatusCode::OK, stored.document.clone()),
            Method::PUT if tag.is_some_and(|tag| tag == stored.tag().as_str()) => {
                stored.replace(request.body().clone());
                (StatusCode::OK, stored.document.clone())
            }
            Method::PUT => {
                let body = r#"{"error":"the profile was changed by another program"}"#;
                (StatusCode::CONFLICT, body.into())
            }
            _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        };
        let mut response = text(status, "application/json", body);
        if let Ok(tag) = HeaderValue::from_str(&stored.tag()) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        (response, LATENCY)
    }
}

const LATENCY: Duration = Duration::from_millis(60);

pub(super) fn bytes_of(document: &Value) -> Bytes {
    document.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(profile: &Profile, tag: &str, body: &Value) -> u16 {
        let request = Request::put("/profiles/ada").header(header::IF_MATCH, tag);
        let request = request.body(bytes_of(body)).unwrap();
        profile.respond(&request).0.status().as_u16()
    }

    #[test]
    fn accepts_a_change_of_the_present_version_only() {
        let profile = Profile::new();
        let before = profile.change_elsewhere();
        assert_eq!(put(&profile, &before, &ours()), 409);
        let get = Request::get("/profiles/ada").body(Bytes::new()).unwrap();
        let (response, _) = profile.respond(&get);
        assert_eq!(*response.body(), bytes_of(&theirs()));
        let now = response.headers()[header::ETAG].to_str().unwrap();
        assert_eq!(put(&profile, now, &ours()), 200);
        assert_eq!(put(&profile, now, &ours()), 409);
        assert_eq!(*profile.respond(&get).0.body(), bytes_of(&ours()));
    }

    #[test]
    fn both_edits_change_the_name_and_each_another_field() {
        let (base, ours, theirs) = (base(), ours(), theirs());
        assert!(base["name"] != ours["name"] && ours["name"] != theirs["name"]);
        assert!(ours["phone"].is_string() && base["phone"].is_null());
        assert!(theirs["address"]["zip"].is_null() && ours["address"]["zip"].is_string());
    }
}
