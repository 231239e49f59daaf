//! A response whose body counts as in flight until its end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response as HttpResponse;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::{Body, Response, ResponseBuilderExt, Url};

use crate::call::Trail;
use crate::permit::InFlight;

/// A response, and the start of its body as far as it was read.
pub(crate) struct Received {
    url: Url,
    pub(crate) response: HttpResponse<Body>,
    read: VecDeque<Result<Frame<Bytes>, reqwest::Error>>,
    start: Vec<u8>,
}

/// What the policies read of a body.
const MAX_START: usize = 64 * 1024;

impl Received {
    pub(crate) fn new(response: Response) -> Self {
        Self {
            url: response.url().clone(),
            response: response.into(),
            read: VecDeque::new(),
            start: Vec::new(),
        }
    }

    /// Whether the status is an error, whose body may say more.
    pub(crate) fn is_error(&self) -> bool {
        let status = self.response.status();
        status.is_client_error() || status.is_server_error()
    }

    /// Reads the start of the body. What was read is kept if the future is dropped.
    pub(crate) async fn read_start(&mut self) {
        while self.start.len() < MAX_START {
            let body = self.response.body_mut();
            let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
            let Some(frame) = frame else {
                return;
            };
            if let Ok(frame) = &frame
                && let Some(data) = frame.data_ref()
            {
                self.start.extend_from_slice(data);
            }
            let is_over = frame.is_err();
            self.read.push_back(frame);
            if is_over {
                return;
            }
        }
    }

    /// The start of the body.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The response with its whole body, which counts as in flight while it is read.
    pub(crate) fn into_response(
        self,
        in_flight: Option<InFlight>,
        trail: Option<Trail>,
    ) -> Response {
        let (mut parts, body) = self.response.into_parts();
        // Only a builder of reqwest can set the URL.
        let with_url = http::response::Builder::new().url(self.url).body(());
        if let Ok(with_url) = with_url {
            parts.extensions.extend(with_url.into_parts().0.extensions);
        }
        if let Some(trail) = trail {
            parts.extensions.insert(trail);
        }
        let body = BodyInFlight {
            read: self.read,
            rest: body,
            in_flight,
        };
        HttpResponse::from_parts(parts, Body::wrap(body)).into()
    }
}

/// A body that counts as in flight until its end.
struct BodyInFlight {
    /// What was read already.
    read: VecDeque<Result<Frame<Bytes>, reqwest::Error>>,
    rest: Body,
    in_flight: Option<InFlight>,
}

impl HttpBody for BodyInFlight {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        if let Some(frame) = self.read.pop_front() {
            return Poll::Ready(Some(frame));
        }
        let polled = Pin::new(&mut self.rest).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.in_flight = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.iter().filter_map(|frame| frame.as_ref().ok());
        let read: usize = read.filter_map(Frame::data_ref).map(Bytes::len).sum();
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
