//! Live events: server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::api::AdminState;
use super::bodies::Problem;
use super::problem::{Kind, Refused};
use crate::core::{EventHub, NextEvent, Subscription};

/// Events from now on
///
/// Server-sent events: `event` is the kind, `data` an object with its values, times in
/// milliseconds of Unix time. A client that reads too slowly gets an event `missed` with a `count`.
/// The stream has no end.
#[utoipa::path(
    get, operation_id = "watchEvents", path = "/api/v1/events", tag = "requests",
    responses(
        (status = 200, description = "A stream", body = String, content_type = "text/event-stream"),
        (status = 503, description = "There are too many streams already", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn events(State(admin): State<Arc<AdminState>>) -> Result<Response, Refused> {
    let Some(subscription) = admin.state.core().events().subscribe() else {
        let detail = format!(
            "there may be {} streams at a time",
            EventHub::MAX_SUBSCRIBERS
        );
        return Err(Refused::new(Kind::TooManyStreams, detail));
    };
    let stream = Stream {
        subscription,
        has_begun: false,
        alive: alive(),
        closing: Box::pin(admin.closing()),
    };
    let mut answer = Response::new(Body::new(stream));
    let kind = HeaderValue::from_static("text/event-stream");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answer)
}

/// Proxies close connections on which nothing happens for half a minute.
const ALIVE: Duration = Duration::from_secs(15);

fn alive() -> Interval {
    let mut interval = interval_at(Instant::now() + ALIVE, ALIVE);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

struct Stream {
    subscription: Subscription,
    has_begun: bool,
    alive: Interval,
    closing: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = |text: String| Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))));
        if !self.has_begun {
            // At once, so that a client knows that the stream works before the first event.
            self.has_begun = true;
            return frame("retry: 2000\n: events from now on\n\n".to_owned());
        }
        if self.closing.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(next) = self.subscription.poll_next(context) {
            self.alive.reset();
            return frame(match next {
                NextEvent::Event(event) => {
                    format!("event: {}\ndata: {}\n\n", event.name, event.data)
                }
                NextEvent::Missed(count) => {
                    format!("event: missed\ndata: {{\"count\":{count}}}\n\n")
                }
            });
        }
        match self.alive.poll_tick(context) {
            Poll::Ready(_) => frame(": still here\n\n".to_owned()),
            Poll::Pending => Poll::Pending,
        }
    }
}
