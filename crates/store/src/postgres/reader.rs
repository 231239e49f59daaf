//! The thread that reads operations, and that exchanges notifications with other nodes.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::Notification;

use super::address::DatabaseAddress;
use super::connection::Connection;
use super::database::{Identity, runtime};
use super::notifications::{self, Announcement, Notifications};
use super::problem::PostgresError;
use crate::call::reply;
use crate::error::StoreError;
use crate::faulty::Faults;
use crate::operations::QueueFuture;
use crate::seal::Keys;
use crate::writer::join;

/// At most this many reads wait.
const MAX_READS: usize = 1024;

pub(super) struct Reader {
    /// `None` at the end.
    reads: Option<mpsc::Sender<Read>>,
    thread: Option<JoinHandle<()>>,
}

/// A read, whatever its result.
type Read = Box<dyn FnOnce(Rc<Source>) -> LocalFuture + Send>;

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

impl Reader {
    pub(super) fn start(
        address: &DatabaseAddress,
        keys: Keys,
        faults: Faults,
        identity: Identity,
        notifications: Arc<Notifications>,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let (sender, receiver) = mpsc::channel(MAX_READS);
        let address = address.clone();
        let thread = thread::Builder::new()
            .name("tidegate-reader".to_owned())
            .spawn(move || {
                let source = Source {
                    address,
                    keys,
                    faults,
                    connection: RefCell::default(),
                    connecting: tokio::sync::Mutex::default(),
                };
                let all = read_all(receiver, Rc::new(source), identity, notifications);
                LocalSet::new().block_on(&runtime, all);
            })?;
        Ok(Self {
            reads: Some(sender),
            thread: Some(thread),
        })
    }

    /// Reads on the thread.
    pub(super) fn read<T: Send + 'static>(
        &self,
        read: impl AsyncFnOnce(Arc<Connection>, Keys) -> Result<T, PostgresError> + Send + 'static,
    ) -> QueueFuture<T> {
        let (reply, future) = reply();
        let read: Read =
            Box::new(move |source| Box::pin(async move { reply.give(source.read(read).await) }));
        match self.reads.as_ref().map(|reads| reads.try_send(read)) {
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                let error = StoreError::QueueFull { queued: MAX_READS };
                Box::pin(std::future::ready(Err(error)))
            }
            // A read that was not taken fails as it is dropped.
            Some(Err(mpsc::error::TrySendError::Closed(_)) | Ok(())) | None => future,
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.reads = None;
        join(self.thread.take());
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// The connection that all reads share: the next is sent before the last is answered.
struct Source {
    address: DatabaseAddress,
    keys: Keys,
    faults: Faults,
    /// `None` before the first read, and after one that failed.
    connection: RefCell<Option<Arc<Connection>>>,
    /// Held while a connection is made.
    connecting: tokio::sync::Mutex<()>,
}

/// How long a read may take.
const READ: Duration = Duration::from_secs(10);

impl Source {
    async fn read<T>(
        &self,
        read: impl AsyncFnOnce(Arc<Connection>, Keys) -> Result<T, PostgresError>,
    ) -> Result<T, StoreError> {
        let reading = async {
            self.faults.next_call()?;
            let connection = self.connection().await?;
            read(connection, self.keys.clone()).await
        };
        let result = timeout(READ, reading).await;
        let result = result.unwrap_or(Err(PostgresError::Silent));
        if result.as_ref().is_err_and(PostgresError::breaks_connection) {
            self.connection.take();
        }
        result.map_err(|problem| problem.at(&self.address))
    }

    async fn connection(&self) -> Result<Arc<Connection>, PostgresError> {
        let _connecting = self.connecting.lock().await;
        let known = self.connection.borrow().clone();
        if let Some(connection) = known.filter(|connection| !connection.is_closed()) {
            return Ok(connection);
        }
        let connection = Connection::open(&self.address, &Faults::none(), |_| {}).await?;
        let connection = Arc::new(connection);
        self.connection.replace(Some(Arc::clone(&connection)));
        Ok(connection)
    }
}

async fn read_all(
    mut reads: mpsc::Receiver<Read>,
    source: Rc<Source>,
    identity: Identity,
    notifications: Arc<Notifications>,
) {
    let address = source.address.clone();
    let polls = tokio::task::spawn_local(poll(Arc::clone(&notifications)));
    let exchange = tokio::task::spawn_local(exchange_notifications(
        address,
        identity.session,
        notifications,
    ));
    while let Some(read) = reads.recv().await {
        tokio::task::spawn_local(read(Rc::clone(&source)));
    }
    exchange.abort();
    polls.abort();
}

/// Reads lanes, pools and jobs at times, whatever notifications do: one may be lost without a sign.
async fn poll(notifications: Arc<Notifications>) {
    loop {
        sleep(about(POLL)).await;
        notifications.missed();
    }
}

/// Runs for ever. Without a connection nothing is lost: lanes are read anyway.
async fn exchange_notifications(
    address: DatabaseAddress,
    session: u64,
    notifications: Arc<Notifications>,
) {
    loop {
        let received = Arc::clone(&notifications);
        let listener = move |notification: Notification| {
            if let Some(message) = notifications::read(session, notification.payload()) {
                received.received(message);
            }
        };
        let opened = Connection::open(&address, &Faults::none(), listener).await;
        if let Ok(connection) = opened
            && connection.batch("LISTEN tidegate").await.is_ok()
        {
            notifications.missed();
            _ = exchange_over(&connection, session, &notifications).await;
        }
        sleep(about(RECONNECT)).await;
    }
}

/// How long to wait for the next attempt to connect.
const RECONNECT: Duration = Duration::from_secs(2);

/// How often lanes, pools and jobs are read without a notification.
const POLL: Duration = Duration::from_secs(5);

/// Messages of this time are sent together.
const GATHER: Duration = Duration::from_millis(20);

async fn exchange_over(
    connection: &Connection,
    session: u64,
    notifications: &Notifications,
) -> Result<(), PostgresError> {
    loop {
        match timeout(POLL, notifications.next()).await {
            Ok(announcement) => {
                announce(connection, session, announcement).await?;
                sleep(GATHER).await;
            }
            // Whether the connection still works.
            Err(_) => connection.batch("").await?,
        }
    }
}

async fn announce(
    connection: &Connection,
    session: u64,
    announcement: Announcement,
) -> Result<(), PostgresError> {
    let Announcement {
        lanes,
        has_pools,
        has_jobs,
    } = announcement;
    let messages = lanes
        .iter()
        .map(|(lane, at)| notifications::message(session, lane, *at));
    let pools = has_pools.then(|| notifications::pools_message(session));
    let jobs = has_jobs.then(|| notifications::jobs_message(session));
    let statements = messages.chain(pools).chain(jobs).map(|message| async move {
        let sql = "SELECT pg_notify('tidegate', $1)";
        connection.query(sql, &[&message]).await
    });
    connection.each(statements, |statement| statement).await?;
    Ok(())
}

/// Between 80 and 120 percent of a time, so that nodes do not do the same thing at once.
fn about(time: Duration) -> Duration {
    let random = super::database::random() % 1024;
    time.mul_f64(0.8 + 0.4 * random as f64 / 1024.0)
}
