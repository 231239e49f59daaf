//! What was measured, as a table for people and as one line of JSON for programs.
//!
//! The only place of this package that prints.

use std::process::ExitCode;

use crate::eviction::Eviction;
use crate::pools::{Pools, SIZES};
use crate::throughput::{Row, Throughput, Times};
use crate::waiters::{Line, Waiters};

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) throughput: Throughput,
    pub(crate) pools: Pools,
    pub(crate) allocations_per_operation: f64,
    pub(crate) bytes_per_key: f64,
    pub(crate) waiters: Waiters,
    pub(crate) eviction: Eviction,
}

pub(crate) fn print(results: &Results) {
    print_throughput(&results.throughput);
    print_pools(&results.pools);
    print_waiters(&results.waiters);
    print_rest(results);
    println!("{}", json(results));
}

pub(crate) fn print_number(number: f64) {
    println!("{number}");
}

pub(crate) fn usage() -> ExitCode {
    eprintln!(
        "usage: tidegate-bench-limiter [--quick | pools | memory KEYS | work NAME KEYS ATTEMPTS]"
    );
    ExitCode::from(2)
}

fn print_throughput(throughput: &Throughput) {
    println!("nanoseconds per attempt: median (fastest to slowest), and ours over theirs");
    println!();
    println!(
        "{:<20}{:>26}{:>33}{:>33}{:>33}",
        "keys", "tidegate", "governor", "governor + failsafe", "governor + recloser"
    );
    print_row("1", &throughput.one_key);
    print_row("10k", &throughput.ten_thousand);
    print_row("1M", &throughput.million);
    print_row("10k, two threads", &throughput.two_threads);
    println!();
}

fn print_row(name: &str, row: &Row) {
    print!("{name:<20}{:>26}", times(&row.ours));
    for peer in [
        &row.governor,
        &row.governor_failsafe,
        &row.governor_recloser,
    ] {
        print!("{:>26} {:>5.2}x", times(peer), ratio(&row.ours, peer));
    }
    println!();
    let others = 100.0 * row.ours.share_of_others;
    if others > REPORTED_LOAD {
        println!("    others had the CPU for {others:.0} % of the time, which is left out");
    }
    if row.ours.refused > 0 {
        let refused = row.ours.refused;
        println!("    tidegate refused {refused} attempts although there was room for them");
    }
}

/// Other processes that use more than this share of the CPU, in percent, are reported: they also use
/// the caches, which no measurement can exclude.
const REPORTED_LOAD: f64 = 5.0;

fn times(times: &Times) -> String {
    format!(
        "{:.1} ({:.1} to {:.1})",
        times.median(),
        times.fastest(),
        times.slowest()
    )
}

fn ratio(ours: &Times, theirs: &Times) -> f64 {
    ours.median() / theirs.median()
}

pub(crate) fn print_pools(pools: &Pools) {
    println!("nanoseconds per attempt through a pool, and over those at one gate");
    println!();
    println!("{:<20}{:>26}", "gate", times(&pools.gate));
    for (size, pool) in SIZES.iter().zip(&pools.pools) {
        let name = format!("{size} endpoints");
        println!(
            "{name:<20}{:>26} {:>5.2}x",
            times(pool),
            ratio(pool, &pools.gate)
        );
    }
    let (gate, pool) = (&pools.gate_two_threads, &pools.pool_two_threads);
    println!("{:<20}{:>26}", "gate, two threads", times(gate));
    println!(
        "{:<20}{:>26} {:>5.2}x",
        "8, two threads",
        times(pool),
        ratio(pool, gate)
    );
    println!();
}

fn print_waiters(waiters: &Waiters) {
    println!("1000 tasks waiting for one key at 500 per second");
    println!();
    println!(
        "{:<20}{:>12}{:>12}{:>18}{:>18}",
        "", "rate share", "inversions", "wakes/admission", "polls/admission"
    );
    print_line("tidegate", &waiters.ours);
    print_line("governor", &waiters.governor);
    println!();
}

fn print_line(name: &str, line: &Line) {
    println!(
        "{name:<20}{:>12.4}{:>12}{:>18.2}{:>18.2}",
        line.rate_share, line.inversions, line.wakes_per_admission, line.polls_per_admission
    );
}

fn print_rest(results: &Results) {
    let eviction = &results.eviction;
    println!(
        "{:<20}{:.1}, besides the text of the key",
        "bytes per key", results.bytes_per_key
    );
    println!(
        "{:<20}{} per acquire and settle of a known key",
        "allocations", results.allocations_per_operation
    );
    println!(
        "{:<20}{:.3} ms median, {:.3} ms p99, {:.3} ms longest; {} slices with {:.0} gates each",
        "slice of eviction",
        eviction.median_ms,
        eviction.p99_ms,
        eviction.longest_ms,
        eviction.slices,
        eviction.evicted_per_slice
    );
    println!();
}

fn json(results: &Results) -> String {
    let throughput = &results.throughput;
    let waiters = &results.waiters.ours;
    let two_threads = &throughput.two_threads;
    let members = [
        member("vs_governor", &by_keys(throughput, |row| &row.governor)),
        member(
            "vs_governor_failsafe",
            &by_keys(throughput, |row| &row.governor_failsafe),
        ),
        member(
            "vs_governor_recloser",
            &by_keys(throughput, |row| &row.governor_recloser),
        ),
        member(
            "two_threads_vs_governor_failsafe",
            &rounded(ratio(&two_threads.ours, &two_threads.governor_failsafe)),
        ),
        member("pool_vs_gate", &by_size(&results.pools)),
        member("allocs_per_op", &rounded(results.allocations_per_operation)),
        member("bytes_per_key", &rounded(results.bytes_per_key)),
        member("waiters", &line_object(waiters)),
        member("evict_slice_ms_p99", &rounded(results.eviction.p99_ms)),
    ];
    object(&members)
}

fn by_keys(throughput: &Throughput, peer: impl Fn(&Row) -> &Times) -> String {
    let over = |row: &Row| rounded(ratio(&row.ours, peer(row)));
    object(&[
        member("1", &over(&throughput.one_key)),
        member("10k", &over(&throughput.ten_thousand)),
        member("1M", &over(&throughput.million)),
    ])
}

fn by_size(pools: &Pools) -> String {
    let mut members: Vec<String> = SIZES
        .iter()
        .zip(&pools.pools)
        .map(|(size, pool)| member(&size.to_string(), &rounded(ratio(pool, &pools.gate))))
        .collect();
    let two_threads = ratio(&pools.pool_two_threads, &pools.gate_two_threads);
    members.push(member("two_threads", &rounded(two_threads)));
    object(&members)
}

fn line_object(line: &Line) -> String {
    object(&[
        member("rate_share", &rounded(line.rate_share)),
        member("inversions", &line.inversions.to_string()),
        member("wakes_per_admission", &rounded(line.wakes_per_admission)),
    ])
}

fn object(members: &[String]) -> String {
    format!("{{{}}}", members.join(","))
}

fn member(name: &str, value: &str) -> String {
    format!("\"{name}\":{value}")
}

/// Four places are more than any of these numbers is good for, and a tiny one must not become
/// zero: what should be none is then seen not to be.
fn rounded(number: f64) -> String {
    let rounded = (number * 1e4).round() / 1e4;
    if rounded == 0.0 && number > 0.0 {
        format!("{number:.9}")
    } else {
        rounded.to_string()
    }
}
