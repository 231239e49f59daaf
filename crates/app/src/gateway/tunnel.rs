//! `CONNECT`: a tunnel through the gateway, of which only the bytes are seen.
//!
//! A tunnel is one permit of its host's gate: it waits for its turn, and is in flight to its end. The
//! breaker learns from connections that cannot be made, and from those that can. What is spoken inside is
//! not known, so that nothing else is learned and nothing is sent again once the tunnel is open.

use std::sync::Arc;

use tidegate::call::TrailStep;

use super::error::GatewayError;
use super::forward::{ForwardHost, TunnelRequest};
use super::relay;
use super::response::{MarkedResponse, Responder};
use super::routes::Routes;
use super::serving::Serving;
use super::worker::Worker;
use crate::exchange::{SendError, Tunnel};

/// What an attempt to open a tunnel came to.
#[derive(Debug)]
pub(super) struct TunnelResponse {
    pub(super) host: Arc<ForwardHost>,
    pub(super) result: Result<Tunnel, SendError>,
}

/// Serves a `CONNECT`.
pub(super) async fn serve(
    worker: &Worker,
    routes: &Routes,
    serving: &Serving,
    request: TunnelRequest,
    mut responder: Responder<'_>,
) -> MarkedResponse {
    let Some(route) = routes.forward() else {
        return responder.refuse(&GatewayError::HostNotAllowed);
    };
    let host = match ForwardHost::new(worker, routes, &request.target) {
        Ok(host) => host,
        Err(error) => return responder.refuse(&error),
    };
    responder.route = Some(route.tunnels(&host.key));
    let exchange = routes.exchange();
    let watch = |step: &TrailStep| responder.watch(step);
    let call = route.call(worker, &host, request.kind, &watch);
    let run = call.run(async |attempt| {
        let opening = exchange.open_tunnel(&attempt, &host.destination, &host.metrics);
        let opened = opening.await;
        let is_permanent = matches!(&opened.value, Err(error) if error.is_permanent);
        let opened = opened.map(|result| TunnelResponse {
            host: Arc::clone(&host),
            result,
        });
        match is_permanent {
            true => opened.last(),
            false => opened,
        }
    });
    let ended = run.await;
    let (response, opened) = responder.respond_to_connect(ended);
    if let Some((tunnel, in_flight)) = opened {
        let (server, idle) = (tunnel.into_io(), exchange.timeouts().idle);
        relay::spawn(worker, serving, request.upgrade, server, in_flight, idle);
    }
    response
}
