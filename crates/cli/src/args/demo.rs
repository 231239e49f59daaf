//! `tidegate demo`.

use clap::Args;

/// See it work: upstreams with limits, the gateway, and clients that know nothing of either
///
/// Starts five mock upstreams whose limits nobody tells the gateway, the gateway itself, and programs
/// that send as fast as they are answered. Shows what each gate has learned, who waits and why, and at
/// the end what came of it. Everything is on free ports of this machine, and nothing stays behind.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// End after so long [default: until Ctrl-C on a terminal, otherwise 60s]
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) length: Option<String>,

    /// The gateway's port; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
}

const EXAMPLES: &str = "\
On a terminal the picture is drawn in place. Elsewhere a block is written every five seconds, with
--quiet only the result, and with --json only the result as JSON.

What naive retries come to is computed at the end: the simulator plays as many clients against the
same upstreams for as long, in virtual time.

Examples:
  tidegate demo
  tidegate demo --for 30s --port 7070
  tidegate demo --for 60s --json";
