//! The listener of the admin API: its thread, its connections, and how it ends.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use super::api::{self, AdminState};
use super::guard::Guard;
use super::key_path;
use super::problem::{PROBLEM, Refused};
use super::token::{Token, TokenError};
use crate::gateway::RequestTrails;
use crate::host_check::Names;
use crate::state::State;

/// An admin API that serves.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    admin: Arc<AdminState>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start the admin API")]
    Thread(#[source] io::Error),
}

impl Admin {
    /// Listens, and serves from then on.
    ///
    /// # Errors
    ///
    /// If there is no token, the address is taken, or there is no thread to be had.
    pub fn start(state: Arc<State>, trails: Arc<RequestTrails>) -> Result<Self, AdminError> {
        let configuration = state.configuration();
        let server = &configuration.settings().server;
        let token = Token::open(&server.data)?;
        let address = server.admin;
        let listen = |error| AdminError::Listen { address, error };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let admin = Arc::new(AdminState::new(state, trails));
        let front = Arc::new(Front {
            token,
            address,
            admin: Arc::clone(&admin),
            router: api::router(Arc::clone(&admin)),
        });
        let (stop, stopping) = watch::channel(false);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AdminError::Thread)?;
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || runtime.block_on(accept(listener, front, stopping)))
            .map_err(AdminError::Thread)?;
        Ok(Self {
            address,
            admin,
            stop,
            thread,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says from now on that no more requests should be sent here.
    pub fn drain(&self) {
        self.admin.start_draining();
    }

    /// Ends it. What is under way is finished; those who look on are sent away.
    pub fn stop(self) {
        self.stop.send_replace(true);
        // Who panicked has said so.
        _ = self.thread.join();
    }
}

/// What all connections have in common.
#[derive(Debug)]
struct Front {
    token: Token,
    address: SocketAddr,
    admin: Arc<AdminState>,
    router: Router,
}

/// A person and a few programs; more of them wait.
const MOST_OPEN: usize = 256;

/// Before looking again when the system gives no connection.
const PAUSE: Duration = Duration::from_millis(10);

/// For a head to come, and for what is under way when everything ends.
const PATIENCE: Duration = Duration::from_secs(10);

async fn accept(listener: TcpListener, front: Arc<Front>, mut stop: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let seats = Arc::new(Semaphore::new(MOST_OPEN));
    let stopping = stop.clone();
    let work = async {
        loop {
            let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (front, stopping) = (Arc::clone(&front), stopping.clone());
                    tokio::spawn(async move {
                        front.serve(stream, stopping).await;
                        drop(seat);
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = is_told(&mut stop) => {}
    }
    let all = u32::try_from(MOST_OPEN).unwrap_or(u32::MAX);
    let finished = async {
        _ = seats.acquire_many(all).await;
        // A client may have left while its change was being stored.
        front.admin.state.finish_changes().await;
    };
    // What takes longer than that ends with the process.
    _ = tokio::time::timeout(PATIENCE, finished).await;
}

async fn is_told(stop: &mut watch::Receiver<bool>) {
    // Without a sender everything ends as well.
    _ = stop.wait_for(|is_told| *is_told).await;
}

impl Front {
    async fn serve(self: Arc<Self>, stream: TcpStream, mut stop: watch::Receiver<bool>) {
        _ = stream.set_nodelay(true);
        let service = service_fn(|request| {
            let front = Arc::clone(&self);
            async move { Ok::<_, Infallible>(front.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        // How a connection ends is its caller's matter.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = is_told(&mut stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        self.admin.close_streams();
        _ = connection.await;
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response {
        let mut answer = match self.guard().check(&request) {
            Err(refused) => refused.into_response(),
            Ok(()) => {
                key_path::join(&mut request);
                self.route(request).await
            }
        };
        let headers = answer.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        answer
    }

    /// By the settings of now, for a reload may have changed our names.
    fn guard(&self) -> Guard {
        let configuration = self.admin.state.configuration();
        Guard {
            names: Names::new(configuration.settings(), self.address),
            token: self.token.clone(),
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Response {
        let mut router = self.router.clone();
        let answer = match router.call(request.map(Body::new)).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let is_ours = answer.headers().get(CONTENT_TYPE) == Some(&PROBLEM);
        if answer.status().is_client_error() && !is_ours {
            let refused = Refused::instead_of(answer.status(), answer.headers());
            let allowed = answer.headers().get(http::header::ALLOW).cloned();
            let mut instead = refused.into_response();
            if let Some(allowed) = allowed {
                instead.headers_mut().insert(http::header::ALLOW, allowed);
            }
            return instead;
        }
        answer
    }
}

const POLICY: HeaderValue = HeaderValue::from_static("default-src 'self'; frame-ancestors 'none'");
