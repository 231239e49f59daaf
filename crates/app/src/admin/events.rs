//! Live events: server-sent events, and the last of them.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use policy::setting;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{Problem, RecentEvent, RecentEvents};
use super::problem::{Kind, Refused};
use super::query;
use super::samples::{MAX_KEYS, MAX_PERIOD, MIN_PERIOD, Samples};
use crate::core::{EventHub, EventKinds, NextEvent, Subscription};

/// Events from now on
///
/// Server-sent events: `event` is the kind, `data` an object with its values, times in
/// milliseconds of Unix time, `id` a number that grows. The first is `hello` with the time, the
/// version and the `boot_id` of the process; nothing is sent again to a client that comes back. With `key` or `sample`
/// an event `sample` has totals and the named gates, at once and then again and again. A client that
/// reads too slowly gets an event `missed` with a `count`. The stream has no end.
#[utoipa::path(
    get, operation_id = "watchEvents", path = "/api/v1/events", tag = "requests", params(EventQuery),
    responses(
        (status = 200, description = "A stream", body = String, content_type = "text/event-stream"),
        (status = 503, description = "There are too many streams already", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn events(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let asked = StreamQuery::read(query.as_deref())?;
    let Some(subscription) = admin.state.core().events().subscribe(asked.kinds) else {
        let detail = format!(
            "there may be {} streams at a time",
            EventHub::MAX_SUBSCRIBERS
        );
        return Err(Refused::new(Kind::TooManyStreams, detail));
    };
    let sampling = asked.period.map(|period| {
        let first = Instant::now() + Samples::until_next(&admin, period);
        let mut ticks = interval_at(first, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Sampling {
            keys: asked.keys,
            ticks,
            is_first: true,
        }
    });
    let stream = Stream {
        closing: Box::pin(admin.closing()),
        admin,
        subscription,
        has_begun: false,
        sampling,
        alive: alive(),
    };
    let mut answer = Response::new(Body::new(stream));
    let kind = HeaderValue::from_static("text/event-stream");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answer)
}

/// The last changes of state
///
/// Newest first, those of the kinds that `kinds=changes` streams.
#[utoipa::path(
    get, operation_id = "listRecentEvents", path = "/api/v1/events/recent", tag = "requests", params(RecentQuery),
    responses((status = 200, description = "The changes", body = RecentEvents))
)]
pub(super) async fn recent(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<RecentEvents>, Refused> {
    let mut limit = EventHub::MAX_RECENT;
    query::read(query.as_deref(), &["limit"], |name, value| {
        Some(match name {
            "limit" => setting::whole(value, 1, EventHub::MAX_RECENT).map(|read| limit = read),
            _ => return None,
        })
    })?;
    let events = admin.state.core().events().recent(limit);
    let events = events.iter().map(|event| RecentEvent {
        id: event.id,
        at_ms: event.at_ms,
        kind: event.name.to_owned(),
        data: event.data.clone(),
        text: event.data["text"].as_str().unwrap_or_default().to_owned(),
    });
    Ok(Json(RecentEvents {
        events: events.collect(),
    }))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes the parameters")]
struct EventQuery {
    /// `all`, `changes` (what changes the state of a gate, an endpoint or a credential, and operations that need a
    /// person), `none`, or names of kinds separated by commas; by default `all`
    #[param(default = "all")]
    kinds: Option<String>,
    /// A gate to sample; at most 100, each in a parameter of its own
    #[param(example = "llm/a")]
    key: Option<String>,
    /// The time from one sample to the next, from `250ms` to `60s`; with `key`, by default `1s`
    #[param(example = "1s")]
    sample: Option<String>,
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes the parameters")]
struct RecentQuery {
    /// The most changes to list
    #[param(minimum = 1, maximum = 200, default = 200)]
    limit: Option<usize>,
}

/// What a stream carries.
#[derive(Debug, PartialEq)]
struct StreamQuery {
    kinds: EventKinds,
    keys: Vec<Arc<str>>,
    period: Option<Duration>,
}

impl StreamQuery {
    fn read(query: Option<&str>) -> Result<Self, Refused> {
        let mut read = Self {
            kinds: EventKinds::All,
            keys: Vec::new(),
            period: None,
        };
        query::read(query, &["kinds", "key", "sample"], |name, value| {
            Some(match name {
                "kinds" => read_kinds(value).map(|kinds| read.kinds = kinds),
                "key" if read.keys.len() >= MAX_KEYS => Err(format!("at most {MAX_KEYS} keys")),
                "key" => {
                    read.keys.push(Arc::from(value));
                    Ok(())
                }
                "sample" => query::time(value, MIN_PERIOD, MAX_PERIOD)
                    .map(|period| read.period = Some(period)),
                _ => return None,
            })
        })?;
        if !read.keys.is_empty() {
            read.period.get_or_insert(Duration::from_secs(1));
        }
        Ok(read)
    }
}

fn read_kinds(text: &str) -> Result<EventKinds, String> {
    match text {
        "" | "all" => return Ok(EventKinds::All),
        "changes" => return Ok(EventKinds::Changes),
        "none" => return Ok(EventKinds::Named(Vec::new())),
        _ => {}
    }
    let names = text.split(',').map(|name| EventKinds::named(name.trim()));
    let names: Option<Vec<&'static str>> = names.collect();
    names.map(EventKinds::Named).ok_or_else(|| {
        let names = EventKinds::all().join("`, `");
        format!("`all`, `changes`, `none`, or some of `{names}`")
    })
}

/// Proxies close connections on which nothing happens for half a minute.
const ALIVE: Duration = Duration::from_secs(15);

fn alive() -> Interval {
    let mut interval = interval_at(Instant::now() + ALIVE, ALIVE);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

struct Stream {
    admin: Arc<AdminState>,
    subscription: Subscription,
    has_begun: bool,
    sampling: Option<Sampling>,
    alive: Interval,
    closing: Pin<Box<dyn Future<Output = ()> + Send>>,
}

struct Sampling {
    keys: Vec<Arc<str>>,
    ticks: Interval,
    is_first: bool,
}

impl Stream {
    /// At once, so that a client knows that the stream works before the first event.
    fn hello(&self) -> Bytes {
        let version = self.admin.version();
        let hello = json!({
            "now_ms": self.admin.state.clock().wall().as_unix_millis(),
            "boot_id": version.boot_id,
            "version": version.version,
            "demo": version.demo,
        });
        let id = self.subscription.new_id();
        let text =
            format!("retry: 2000\n: events from now on\nid: {id}\nevent: hello\ndata: {hello}\n\n");
        text.into()
    }

    /// A sample, if one is due.
    fn poll_sample(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        let Some(sampling) = &mut self.sampling else {
            return Poll::Pending;
        };
        if !std::mem::take(&mut sampling.is_first) && sampling.ticks.poll_tick(context).is_pending()
        {
            return Poll::Pending;
        }
        let id = self.subscription.new_id();
        let sample = self.admin.samples.write(&self.admin, &sampling.keys, id);
        Poll::Ready(sample.into())
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        self.subscription.poll_next(context).map(|next| match next {
            NextEvent::Event(event) => event.frame(),
            NextEvent::Missed(count) => {
                let id = self.subscription.new_id();
                let data = json!({ "count": count });
                format!("id: {id}\nevent: missed\ndata: {data}\n\n").into()
            }
        })
    }
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if !self.has_begun {
            self.has_begun = true;
            return frame(self.hello());
        }
        if self.closing.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        // Samples first: a client that gets many events still gets them in time.
        let mut next = self.poll_sample(context);
        if next.is_pending() {
            next = self.poll_event(context);
        }
        if let Poll::Ready(bytes) = next {
            self.alive.reset();
            return frame(bytes);
        }
        match self.alive.poll_tick(context) {
            Poll::Ready(_) => frame(Bytes::from_static(b": still here\n\n")),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_query_or_says_what_is_expected() {
        let read = |query: &str| StreamQuery::read(Some(query)).unwrap();
        assert_eq!(read("").kinds, EventKinds::All);
        assert_eq!(read("").period, None);
        let stream = read("kinds=changes&key=llm/a&key=llm%2Fb");
        assert_eq!(stream.kinds, EventKinds::Changes);
        assert_eq!(stream.keys, [Arc::from("llm/a"), Arc::from("llm/b")]);
        assert_eq!(stream.period, Some(Duration::from_secs(1)));
        assert_eq!(read("sample=250ms").period, Some(MIN_PERIOD));
        assert_eq!(read("kinds=none").kinds, EventKinds::Named(Vec::new()));
        let named = EventKinds::Named(vec!["settled", "hold_started"]);
        assert_eq!(read("kinds=settled,hold_started").kinds, named);
        let check = |query: &str, expected: &str| {
            let detail = StreamQuery::read(Some(query)).unwrap_err().detail;
            assert!(detail.starts_with(expected), "{detail}");
        };
        check(
            "kinds=x",
            "`kinds` is `x`, expected `all`, `changes`, `none`, or some of",
        );
        check(
            "sample=1ms",
            "`sample` is `1ms`, expected a time from 250ms to 1m",
        );
        check("page=1", "there is no parameter `page`");
        let many = "key=a&".repeat(MAX_KEYS + 1);
        check(&many, "`key` is `a`, expected at most 100 keys");
    }
}
