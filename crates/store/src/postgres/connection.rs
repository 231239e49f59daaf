//! A connection, with the statements that were prepared on it.
//!
//! Statements that do not need each other's results are sent one after the other without waiting in
//! between ([`Connection::each`], `try_join`): a round trip for all of them. The server does them in the
//! order in which they are sent, which is that of their futures once they are prepared.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Notification, Row, Statement};

use super::address::DatabaseAddress;
use super::problem::PostgresError;
use super::tls::Tls;
use crate::faulty::Faults;

/// The values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(super) struct Connection {
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    faults: Faults,
}

impl Connection {
    /// Connects. Messages of the server that answer no query are passed to `listener`.
    pub(super) async fn open(
        address: &DatabaseAddress,
        faults: &Faults,
        listener: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Self, PostgresError> {
        let connecting = async {
            match address.uses_tls() {
                true => {
                    let tls = Tls::new(address.roots.as_deref()).map_err(PostgresError::Roots)?;
                    let (client, connection) = address.config().connect(tls).await?;
                    tokio::spawn(drive(connection, listener));
                    Ok::<_, PostgresError>(client)
                }
                false => {
                    let (client, connection) = address.config().connect(NoTls).await?;
                    tokio::spawn(drive(connection, listener));
                    Ok(client)
                }
            }
        };
        let connected = timeout(CONNECT, connecting).await;
        let client = connected.map_err(|_| PostgresError::Silent)??;
        client.batch_execute(PREPARE).await?;
        client.batch_execute(PLANNING).await?;
        Ok(Self {
            client,
            statements: Mutex::default(),
            faults: faults.clone(),
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Does several statements without values.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), PostgresError> {
        self.faults.next_call()?;
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Prepares a statement that has to be sent before another one without waiting for its result.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<(), PostgresError> {
        self.statement(sql).await.map(drop)
    }

    /// The rows of a statement, which is prepared once.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        let statement = self.statement(sql).await?;
        Ok(self.client.query(&statement, values).await?)
    }

    /// The rows of a statement that is used once.
    pub(super) async fn query_once(
        &self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        Ok(self.client.query(sql, values).await?)
    }

    /// Writes by a statement, and returns how many rows it has changed.
    pub(super) async fn execute(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<u64, PostgresError> {
        self.faults.next_call()?;
        let statement = self.statement(sql).await?;
        Ok(self.client.execute(&statement, values).await?)
    }

    /// Does something for every item, all of it in one round trip.
    pub(super) async fn each<I, T, F>(
        &self,
        items: impl IntoIterator<Item = I>,
        run: impl Fn(I) -> F,
    ) -> Result<Vec<T>, PostgresError>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        try_join_all(items.into_iter().map(run)).await
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, PostgresError> {
        let known = self.lock().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.lock().insert(sql, statement.clone());
        Ok(statement)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Statement>> {
        self.statements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longer than the connections to all addresses of a host take.
const CONNECT: Duration = Duration::from_secs(10);

/// All names are in a schema of their own; a session that hangs in a transaction is ended, for it
/// holds locks that others wait for.
const PREPARE: &str = "
    SET search_path = tidegate, pg_temp;
    SET client_min_messages = warning;
    SET idle_in_transaction_session_timeout = '10s';
    SET lock_timeout = '10s'";

/// Every statement has its index. Without statistics, as on a new database, the server would rather read
/// all of a table, and keep to that plan while the table grows.
pub(super) const PLANNING: &str = "SET enable_seqscan = off";

/// Moves the bytes of a connection until it ends.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    mut listener: impl FnMut(Notification),
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio_postgres::tls::TlsStream + Unpin,
{
    loop {
        match std::future::poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => listener(notification),
            Some(Ok(_)) => {}
            // Its statements fail as the client finds it closed.
            Some(Err(_)) | None => return,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
