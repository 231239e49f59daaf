//! Conflicts: fetches what the server has, and applies the merge rule of the operation's type.

use http::header::{ETAG, HOST};
use http::{HeaderMap, HeaderName, Request};
use http_body_util::{BodyExt, Limited};
use policy::merge::{Conflict, MergeDecision, Theirs};
use store::operations::{Claimed, RuleDecision, StoredConflict};
use url::{Position, Url};

use super::Worker;
use super::deliver::header_pairs;
use super::source::Source;
use crate::exchange::{ReplayableBody, RequestBody, SendResult, Target, Trust};
use crate::settings::OperationType;
use crate::state::{AccessToken, Configuration, resolved_request};

/// What is known about a conflict.
pub(super) struct FoundConflict {
    pub(super) stored: StoredConflict,
    /// The server has nothing there: 404 or 410.
    is_gone: bool,
}

/// What the server has where the operation's `resource` is.
enum Fetched {
    Gone,
    Document { body: Vec<u8>, etag: Option<String> },
}

impl FoundConflict {
    /// Fetches what the server has, if the operation names a resource. If that fails, `etag` is known,
    /// from the response that reported the conflict.
    pub(super) async fn fetch(
        worker: &Worker,
        configuration: &Configuration,
        claimed: &Claimed,
        credential: Option<&AccessToken>,
        etag: Option<String>,
    ) -> Self {
        let resource = claimed.request.resource.as_deref();
        let url = resource.and_then(|resource| Url::parse(resource).ok());
        let fetched = match url {
            Some(url) => {
                let fetch = Fetch {
                    worker,
                    configuration,
                    claimed,
                    credential,
                    url,
                };
                fetch.run().await
            }
            None => None,
        };
        let (theirs, etag, is_gone) = match fetched {
            Some(Fetched::Gone) => (None, None, true),
            Some(Fetched::Document { body, etag: own }) => (Some(body), own.or(etag), false),
            None => (None, etag, false),
        };
        Self {
            stored: StoredConflict {
                theirs,
                etag,
                fetched_at: worker.now(),
            },
            is_gone,
        }
    }

    /// What the rule of the operation's type decides. Without a decision it waits for a person.
    pub(super) fn decide(
        &self,
        operation_type: &OperationType,
        claimed: &Claimed,
    ) -> Option<RuleDecision> {
        let Claimed {
            operation, request, ..
        } = claimed;
        let conflict = Conflict {
            method: &request.method,
            base: request.base.as_deref(),
            ours: &request.body,
            theirs: match &self.stored.theirs {
                Some(theirs) => Theirs::Document(theirs),
                None if self.is_gone => Theirs::Gone,
                None => Theirs::Unknown,
            },
            has_version: self.stored.etag.is_some(),
        };
        let body = match operation_type.merge.decide(&conflict) {
            MergeDecision::Person => return None,
            MergeDecision::Complete => return Some(RuleDecision::Complete),
            MergeDecision::Resend => None,
            MergeDecision::Replace(body) if body.len() as u64 > operation_type.max_body => {
                return None;
            }
            MergeDecision::Replace(body) => Some(body),
        };
        let change = resolved_request(operation, request.clone(), Some(&self.stored), body);
        Some(RuleDecision::Send(change))
    }
}

/// One GET of an operation's resource.
struct Fetch<'a> {
    worker: &'a Worker,
    configuration: &'a Configuration,
    claimed: &'a Claimed,
    credential: Option<&'a AccessToken>,
    url: Url,
}

impl Fetch<'_> {
    /// Asks the gate of the resource's host, and sends the request once. `None` if it is refused, or
    /// the response is no document.
    async fn run(&self) -> Option<Fetched> {
        let key = policy::key::normalize(self.url.as_str()).ok()?;
        let source = Source::new(self.worker, &key);
        let admitted = source.ask(self.worker, 1).await.ok()?;
        let attempt = admitted.attempt(1);
        let state = &self.worker.state;
        let exchange = self.configuration.exchange();
        let destination = exchange.destination(&self.url, Trust::Untrusted).ok();
        let uri = self.url[Position::BeforePath..Position::AfterQuery]
            .parse()
            .ok();
        let (Some(destination), Some(uri)) = (destination, uri) else {
            admitted.give_back();
            return None;
        };
        let mut headers = self.headers();
        headers.insert(HOST, destination.authority().clone());
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let rules = state.limiter().rules(&key);
        let target = Target {
            destination: &destination,
            rules: &rules,
            phrase_in: |_: &str| None,
            metrics: &state.core().metrics().key(&key),
            worker: state.core().operations_worker(),
        };
        let make = || {
            (
                request.clone().map(|()| RequestBody::EMPTY),
                ReplayableBody::NONE,
            )
        };
        let answered = exchange.attempt(&attempt, target, make).await;
        let Some(outcome) = answered.outcome else {
            admitted.give_back();
            return None;
        };
        let in_flight = admitted.settle(&outcome, answered.verdict, &answered.text);
        let fetched = self.read(answered.value).await;
        drop(in_flight);
        fetched
    }

    /// The headers of the operation, without those about its body and its preconditions.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let pairs = header_pairs(&self.claimed.request.headers);
        for (name, value) in pairs.filter(|(name, _)| !is_about_the_body(name)) {
            headers.append(name, value);
        }
        if let Some(credential) = self.credential {
            credential.apply(&mut headers);
        }
        headers
    }

    async fn read(&self, result: SendResult) -> Option<Fetched> {
        let (head, body) = result.ok()?.into_parts();
        if matches!(head.status.as_u16(), 404 | 410) {
            return Some(Fetched::Gone);
        }
        if !head.status.is_success() {
            return None;
        }
        let kind = &self.claimed.operation.kind;
        let max_body = self.configuration.settings().operation(kind).max_body;
        let most = usize::try_from(max_body).unwrap_or(usize::MAX);
        let body = Limited::new(body, most).collect().await.ok()?;
        let etag = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        Some(Fetched::Document {
            body: body.to_bytes().to_vec(),
            etag: etag.map(str::to_owned),
        })
    }
}

fn is_about_the_body(name: &HeaderName) -> bool {
    let name = name.as_str();
    let is_other = matches!(name, "idempotency-key" | "prefer" | "range");
    is_other || name.starts_with("content-") || name.starts_with("if-")
}
