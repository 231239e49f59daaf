//! Gates that several machines share, in a Redis server: the only place that speaks to Redis.
//!
//! What nodes know of a key is in three small values that one script reads and writes, `sync.lua`;
//! `release.lua` ends what a node has. Scripts run by the time of the server alone, and answer with
//! lengths of time, so that clocks of nodes do not matter. Everything under a key expires ten minutes
//! after its last use.
//!
//! | key | value |
//! |---|---|
//! | `tg:NAMESPACE:meta` | hash: version of the layout, settings that must agree, a random generation |
//! | `tg:NAMESPACE:nodes` | hash: node, when it was last seen and what people see of it |
//! | `tg:NAMESPACE:{KEY}:h` | the header: rate, next free send time, hold, epoch, owner, merged feedback, breaker |
//! | `tg:NAMESPACE:{KEY}:l` | hash: the lease of each node |
//! | `tg:NAMESPACE:{KEY}:r` | what the owner's controller needs to go on elsewhere |

mod address;
mod problem;
mod wire;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::time::Duration;

use policy::fleet::{Call, FleetSettings, NodeId, Notice, Reply};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Script, TlsCertificates, Value};
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

pub use address::{GatesAddress, GatesAddressError};
pub use problem::{FleetError, FleetOpenError};

use crate::error::OpenError;
use problem::opening;

/// Who takes part in which fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetMember {
    /// The fleet: nodes with the same namespace on one server are one fleet.
    pub namespace: String,
    /// What must be the same on all nodes, in one line.
    pub settings: String,
    /// This node.
    pub node: NodeId,
    /// Name, version and address, for people.
    pub about: String,
}

/// A connection to the server of a fleet, made again by the next call after a failure.
pub struct FleetServer {
    client: Client,
    address: GatesAddress,
    member: FleetMember,
    messages: Sender<FleetMessage>,
    connection: Option<MultiplexedConnection>,
    join: Script,
    sync: Script,
    release: Script,
}

/// What one node says about one key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyCall {
    /// The key of the gate.
    pub key: String,
    /// What all nodes agree on for this key.
    pub settings: FleetSettings,
    /// What it says.
    pub call: Call,
}

/// What the server answers, by its own time.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncReply {
    /// Microseconds of the server's clock.
    pub server_time: u64,
    /// In the order of the calls.
    pub replies: Vec<Reply>,
}

/// What one node has of a key, as the server knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeShare {
    /// The node.
    pub node: NodeId,
    /// Its name, version and address, for people; empty if it is not present any more.
    pub about: String,
    /// Its part of the rate, from 0 to 1.
    pub share: f64,
    /// Requests per second that it would send if it could.
    pub demand: f64,
}

/// What another node has changed at once.
#[derive(Clone, Debug, PartialEq)]
pub enum FleetMessage {
    /// About a key.
    Notice {
        /// The key of the gate.
        key: String,
        /// What is new.
        notice: Notice,
    },
    /// The connection has ended, with all subscriptions.
    Disconnected,
}

impl FleetServer {
    /// The version of what is stored. A later one is not touched.
    pub const SCHEMA: u32 = 1;

    /// A server, not connected yet. Messages of other nodes are passed to `messages`.
    ///
    /// # Errors
    ///
    /// If the file of `cacert` cannot be used.
    pub fn new(
        address: GatesAddress,
        member: FleetMember,
        messages: Sender<FleetMessage>,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            client: client(&address)?,
            address,
            member,
            messages,
            connection: None,
            join: Script::new(include_str!("redis/join.lua")),
            sync: Script::new(include_str!("redis/sync.lua")),
            release: Script::new(include_str!("redis/release.lua")),
        })
    }

    /// Connects, checks what answers, and enters the fleet.
    ///
    /// # Errors
    ///
    /// If it cannot be reached or used: it refuses the user or the password, is too old or a cluster, has a
    /// layout of a later version, or a fleet with other settings is present in the namespace.
    pub async fn open(&mut self) -> Result<Membership, FleetOpenError> {
        let opening = |error: &redis::RedisError, address: &GatesAddress| FleetOpenError {
            error: opening(error, address),
            is_unreachable: problem::is_unreachable(error),
        };
        match timeout(CONNECT, self.connect()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(opening(&error, &self.address)),
            Err(_) => {
                return Err(FleetOpenError {
                    error: problem::silent(&self.address),
                    is_unreachable: true,
                });
            }
        }
        let info = self.info().await;
        let info = info.map_err(|error| opening(&error, &self.address))?;
        let version = info.version();
        let refused = |error| {
            Err(FleetOpenError {
                error,
                is_unreachable: false,
            })
        };
        if version.0 < MIN_VERSION {
            return refused(problem::too_old(&self.address, version));
        }
        if info.value("redis_mode:") == "cluster" {
            return refused(problem::cluster(&self.address));
        }
        let joined = self.join().await;
        joined.map_err(|error| FleetOpenError {
            is_unreachable: matches!(error, FleetError::Unreachable { .. }),
            error: error.opening(&self.address),
        })
    }

    /// Enters the fleet, or says again that the node is present.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`].
    pub async fn join(&mut self) -> Result<Membership, FleetError> {
        let (fleet, nodes) = (self.key("meta"), self.key("nodes"));
        let member = self.member.clone();
        let join = self.join.clone();
        let connection = self.connection().await?;
        let mut call = join.key(fleet);
        call.key(nodes)
            .arg(Self::SCHEMA)
            .arg(&member.settings)
            .arg(format!("{:016x}", random()))
            .arg(hex(member.node))
            .arg(&member.about)
            .arg(PRESENT.as_secs());
        let found: redis::RedisResult<(u32, String, String, u32)> =
            call.invoke_async(connection).await;
        let (schema, settings, generation, others) = self.checked(found)?;
        if schema > Self::SCHEMA {
            return Err(FleetError::Newer { found: schema });
        }
        if settings != member.settings {
            return Err(FleetError::OtherSettings {
                namespace: member.namespace,
                theirs: settings,
                ours: member.settings,
                nodes: others,
            });
        }
        Ok(Membership { generation, others })
    }

    /// How many keys a call has at most: it keeps the server busy for less than half a millisecond.
    pub const MAX_KEYS: usize = 32;

    /// Says something about at most [`Self::MAX_KEYS`] keys. After `deadline`, in microseconds of the
    /// server's clock, the call changes nothing: it may have lain in a server that was frozen.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, refuses, or read it after the deadline.
    pub async fn sync(
        &mut self,
        calls: &[KeyCall],
        deadline: Option<u64>,
    ) -> Result<SyncReply, FleetError> {
        self.sync_at(calls, deadline, None).await
    }

    /// [`Self::sync`] at a time of the test's instead of the server's.
    async fn sync_at(
        &mut self,
        calls: &[KeyCall],
        deadline: Option<u64>,
        now: Option<u64>,
    ) -> Result<SyncReply, FleetError> {
        let text =
            |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let sync = self.sync.clone();
        let mut script = sync.prepare_invoke();
        script
            .arg(hex(self.member.node))
            .arg(text(deadline))
            .arg(text(now));
        for KeyCall {
            key,
            settings,
            call,
        } in calls
        {
            let base = self.base(key);
            script.key(format!("{base}:h")).key(format!("{base}:l"));
            script
                .key(format!("{base}:r"))
                .arg(wire::encode(settings, call));
        }
        let answer: redis::RedisResult<Vec<Vec<u8>>> =
            script.invoke_async(self.connection().await?).await;
        let answer = self.checked(answer)?;
        self.read(calls.len(), &answer)
    }

    fn read(&self, calls: usize, answer: &[Vec<u8>]) -> Result<SyncReply, FleetError> {
        let server = self.address.to_string();
        let Some((time, rows)) = answer.split_first() else {
            return Err(FleetError::Unreadable { server });
        };
        if rows.is_empty() && calls > 0 {
            return Err(FleetError::Stale { server });
        }
        let time = str::from_utf8(time).ok().and_then(|text| text.parse().ok());
        let replies: Option<Vec<Reply>> = rows.iter().map(|row| wire::decode(row)).collect();
        match (time, replies) {
            (Some(server_time), Some(replies)) if replies.len() == calls => Ok(SyncReply {
                server_time,
                replies,
            }),
            _ => Err(FleetError::Unreadable { server }),
        }
    }

    /// What each node has of a key, in the order of what people see of them. Changes nothing, and works
    /// for one that has not entered the fleet.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or refuses.
    pub async fn shares(&mut self, key: &str) -> Result<Vec<NodeShare>, FleetError> {
        let (leases, nodes) = (format!("{}:l", self.base(key)), self.key("nodes"));
        let mut commands = redis::pipe();
        commands.cmd("TIME");
        commands.cmd("HGETALL").arg(leases);
        commands.cmd("HGETALL").arg(nodes);
        let found: redis::RedisResult<wire::Found> =
            commands.query_async(self.connection().await?).await;
        Ok(wire::shares(self.checked(found)?))
    }

    /// Gives up everything that the node has of these keys, and leaves the fleet.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or refuses.
    pub async fn release(&mut self, keys: &[String]) -> Result<(), FleetError> {
        let release = self.release.clone();
        let mut script = release.prepare_invoke();
        script.arg(hex(self.member.node));
        for key in keys {
            let base = self.base(key);
            script.key(format!("{base}:h")).key(format!("{base}:l"));
        }
        script.key(self.key("nodes"));
        let released: redis::RedisResult<()> = script.invoke_async(self.connection().await?).await;
        self.checked(released)
    }

    /// Gets messages about these keys from now on, until the connection ends.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub async fn subscribe(&mut self, keys: &[String]) -> Result<(), FleetError> {
        self.change_subscriptions("SSUBSCRIBE", keys).await
    }

    /// Gets no more messages about these keys.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub async fn unsubscribe(&mut self, keys: &[String]) -> Result<(), FleetError> {
        self.change_subscriptions("SUNSUBSCRIBE", keys).await
    }

    async fn change_subscriptions(
        &mut self,
        command: &str,
        keys: &[String],
    ) -> Result<(), FleetError> {
        let mut command = redis::cmd(command);
        for key in keys {
            command.arg(self.base(key));
        }
        // The server confirms each channel by a message of its own.
        command.set_no_response(true);
        let changed: redis::RedisResult<()> = command.query_async(self.connection().await?).await;
        self.checked(changed)
    }

    /// Ends the connection: the next call makes a new one.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// The channel of a key, and the beginning of the names of its values.
    fn base(&self, key: &str) -> String {
        format!("tg:{}:{{{key}}}", self.member.namespace)
    }

    /// The address, without its password.
    pub fn address(&self) -> &GatesAddress {
        &self.address
    }

    fn key(&self, name: &str) -> String {
        format!("tg:{}:{name}", self.member.namespace)
    }

    async fn connect(&mut self) -> redis::RedisResult<()> {
        self.connection = None;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None)
            .set_push_sender(listener(&self.member.namespace, self.messages.clone()));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        self.connection = Some(connection.await?);
        Ok(())
    }

    async fn connection(&mut self) -> Result<&mut MultiplexedConnection, FleetError> {
        if self.connection.is_none() {
            let connected = self.connect().await;
            self.checked(connected)?;
        }
        Ok(self.connection.as_mut().expect("it was just connected"))
    }

    /// A result; after a failure of the connection the next call makes a new one.
    fn checked<T>(&mut self, result: redis::RedisResult<T>) -> Result<T, FleetError> {
        result.map_err(|error| {
            if problem::breaks_connection(&error) {
                self.connection = None;
            }
            FleetError::of(&error, &self.address)
        })
    }

    async fn info(&mut self) -> redis::RedisResult<ServerInfo> {
        let Some(connection) = &mut self.connection else {
            return Ok(ServerInfo::default());
        };
        let mut command = redis::cmd("INFO");
        let info = command.arg("server").query_async(connection).await?;
        Ok(ServerInfo(info))
    }
}

/// What a server says about itself.
#[derive(Debug, Default)]
struct ServerInfo(String);

impl ServerInfo {
    /// The value of the line that begins so.
    fn value(&self, name: &str) -> &str {
        let mut lines = self.0.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
    }

    /// Major and minor version, of Redis, or of what a server with another name is compatible with.
    fn version(&self) -> (u32, u32) {
        let version = self.value("redis_version:").split('.');
        let mut parts = version.map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }
}

impl fmt::Debug for FleetServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetServer")
            .field("address", &self.address)
            .field("member", &self.member)
            .finish_non_exhaustive()
    }
}

/// What a node finds when it enters a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Random, made with the fleet's first value; another one means that all was deleted.
    pub generation: String,
    /// How many other nodes are present.
    pub others: u32,
}

/// Longer than any connection takes.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a node counts as present after it was last seen.
const PRESENT: Duration = Duration::from_secs(30);

/// Sharded channels are new in it.
const MIN_VERSION: u32 = 7;

fn client(address: &GatesAddress) -> Result<Client, OpenError> {
    let made = match &address.roots {
        Some(path) if address.uses_tls() => {
            let roots = fs::read(path).map_err(|source| OpenError::Io {
                path: path.clone(),
                source,
            })?;
            let certificates = TlsCertificates {
                client_tls: None,
                root_cert: Some(roots),
            };
            Client::build_with_tls(address.info(), certificates)
        }
        _ => Client::open(address.info()),
    };
    made.map_err(|error| opening(&error, address))
}

/// Passes on what the server sends by itself. If messages are not read for long, some are lost, as they
/// are when the connection fails: the next call says the same.
fn listener(
    namespace: &str,
    messages: Sender<FleetMessage>,
) -> impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static {
    let prefix = format!("tg:{namespace}:{{");
    move |push| {
        let message = match push.kind {
            PushKind::Disconnection => Some(FleetMessage::Disconnected),
            PushKind::SMessage => message(&prefix, &push.data),
            _ => None,
        };
        if let Some(message) = message {
            _ = messages.try_send(message);
        }
        Ok(())
    }
}

fn message(prefix: &str, data: &[Value]) -> Option<FleetMessage> {
    let [Value::BulkString(channel), Value::BulkString(payload)] = data else {
        return None;
    };
    let key = str::from_utf8(channel).ok()?.strip_prefix(prefix)?;
    Some(FleetMessage::Notice {
        key: key.strip_suffix('}')?.to_owned(),
        notice: wire::decode_notice(payload)?,
    })
}

fn hex(node: NodeId) -> String {
    format!("{:016x}", node.0)
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
