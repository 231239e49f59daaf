//! The connection of a request that is being served, over either version of HTTP.

use std::sync::Arc;

use http::Request;
use hyper::upgrade::OnUpgrade;

use super::http2::{Http2Connection, ServedStream};
use crate::http1::{ClientConnection, UpgradeTicket};

/// The connection of a request that is being served.
#[derive(Debug)]
pub(super) enum Serving {
    Http1(Arc<ClientConnection>),
    Http2(Arc<Http2Connection>),
}

/// The connection of a client for another protocol, once the client has the response that says so.
#[derive(Debug)]
pub(super) enum ClientUpgrade {
    Http1(UpgradeTicket),
    /// One stream of it.
    Http2(OnUpgrade),
}

impl Serving {
    /// Has the client left, unnoticed so far? Over HTTP/2 everything that comes is read at once.
    pub(super) fn has_left_unnoticed(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.has_left_unnoticed(),
            Self::Http2(_) => false,
        }
    }

    /// The connection of this request, for another protocol.
    pub(super) fn upgrade<B>(&self, request: &mut Request<B>) -> ClientUpgrade {
        match self {
            Self::Http1(connection) => ClientUpgrade::Http1(connection.upgrade()),
            Self::Http2(_) => ClientUpgrade::Http2(hyper::upgrade::on(request)),
        }
    }

    /// Keeps the connection from being closed as unused until this is dropped.
    pub(super) fn hold(&self) -> Option<ServedStream> {
        match self {
            // It has no other streams, and ends with its tunnel.
            Self::Http1(_) => None,
            Self::Http2(connection) => Some(connection.serve()),
        }
    }
}
