//! `tidegate simulate --random`: sets of random upstreams.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

use crate::simulate::{ended, simulate};
use crate::support::{shown, tidegate};

#[test]
fn table_shows_the_distribution_and_the_worst() {
    // Strategies whose figures do not change with the tuning of the default one.
    let args = ["--random", "4", "--seed", "3", "--strategy", "fixed:1,none"];
    assert_snapshot!(simulate(&[args.as_slice(), &["--worst", "2"]].concat()), @"
    exit 0
    --- stdout
    4 random upstreams, seed 3; goodput is that from 60 s on

    share of upstreams                         goal        fixed:1          none
    goodput at least 90 %                      90 %  MISSED 25.0 %   met 100.0 %
    goodput at least 60 %                      99 %  MISSED 25.0 %   met 100.0 %
    refused at most 2 % (6 % below 2/s)        90 %  MISSED 75.0 %  MISSED 0.0 %
    a client banned twice                       0 %      met 0.0 %     met 0.0 %
    goodput at least 90 %, whole run                        25.0 %       100.0 %
    90 % never reached                                      75.0 %         0.0 %
    bans                                                         0             0
    goodput, median                                          1.7 %        99.1 %
    goodput, 10th percentile                                 0.5 %        97.5 %
    goodput, lowest                                          0.5 %        97.5 %
    goodput of the whole run, median                         1.9 %        99.1 %
    goodput of the whole run, 10th percentile                0.5 %        97.5 %
    goodput of the whole run, lowest                         0.5 %        97.5 %
    refused, median                                         0.00 %       74.68 %
    refused, 90th percentile                               87.83 %       97.21 %
    refused, highest                                       87.83 %       97.21 %
    time to 90 %, median                                      0.0s          0.0s
    time to 90 %, 90th percentile                             0.0s          0.1s
    time to 90 %, highest                                     0.0s          0.1s
    fairness, median                                             –             –
    fairness, 10th percentile                                    –             –
    fairness, lowest                                             –             –

    worst of fixed:1  settled  goodput  refused  bans  to 90 %  fairness
    2                  99.3 %   99.3 %  87.83 %     0     0.0s         –  bucket 0.1009/s burst 1, latency 28ms, spread 0.5381, network 37ms, outage 519s..551s, 1020s
    3                   0.5 %    0.5 %   0.00 %     0        –         –  window 5970 in 30s, Retry-After, latency 251ms, spread 0.4243, network 4.831ms, 2.446 % fail, 300s

    worst of none  settled  goodput  refused  bans  to 90 %  fairness
    2              100.4 %  101.3 %  97.21 %     0     0.0s         –  bucket 0.1009/s burst 1, latency 28ms, spread 0.5381, network 37ms, outage 519s..551s, 1020s
    1              100.0 %  104.3 %  90.99 %     0     0.0s         –  window 420 in 300s, Retry-After, latency 848ms, spread 0.3964, network 60ms, to 1845 at 360s, 1560s
    ");
}

#[test]
fn json_has_the_distribution_and_every_upstream() {
    let output = ended(&["--random", "2", "--strategy", "fixed:1", "--json"], b"");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["strategy"], "fixed:1");
    assert_eq!(
        (&result["seed"], &result["distribution"]["upstreams"]),
        (&1.into(), &2.into())
    );
    assert_eq!(result["goals"].as_array().unwrap().len(), 4);
    let upstreams = result["upstreams"].as_array().unwrap();
    assert_eq!(upstreams.len(), 2);
    assert_eq!(upstreams[1]["index"], 1);
    assert!(
        upstreams[1]["about"]
            .as_str()
            .unwrap()
            .starts_with("window ")
    );
    assert!(upstreams[1]["goodput_ratio_settled"].as_f64().unwrap() > 0.0);
    let several = ended(
        &["--random", "1", "--strategy", "fixed:1,fixed:2", "--json"],
        b"",
    );
    let several: Value = serde_json::from_slice(&several.stdout).unwrap();
    assert_eq!(several.as_array().unwrap().len(), 2);
}

#[test]
fn written_files_give_the_same_figures() {
    let folder = TempDir::new().unwrap();
    let mut command =
        tidegate("simulate --random 2 --seed 9 --strategy fixed:1 --json --write set");
    let output = command.current_dir(folder.path()).output().unwrap();
    let set: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (index, expected) in set["upstreams"].as_array().unwrap().iter().enumerate() {
        let file = format!("set/9-000{index}.toml");
        let mut command = tidegate("simulate --strategy fixed:1 --json");
        let output = command
            .arg(&file)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
        for name in [
            "goodput_ratio",
            "refused_ratio",
            "bans",
            "time_to_90_s",
            "jain",
        ] {
            assert_eq!(figures[name], expected[name], "{file} {name}");
        }
    }
    assert_eq!(fs::read_dir(folder.path().join("set")).unwrap().count(), 2);
}

#[test]
fn settings_apply_to_every_upstream() {
    let goodput = |args: &[&str]| {
        let args = [&["--random", "2", "--strategy", "adaptive", "--json"], args].concat();
        let result: Value = serde_json::from_slice(&ended(&args, b"").stdout).unwrap();
        let upstreams = result["upstreams"].as_array().unwrap().clone();
        upstreams
            .iter()
            .map(|of| of["goodput_ratio"].as_f64().unwrap())
            .sum::<f64>()
    };
    assert!(goodput(&["--set", "max_rate=0.2", "--set", "initial_rate=0.2"]) < 0.5 * goodput(&[]));
}

#[test]
fn reports_what_does_not_fit() {
    assert_snapshot!(simulate(&["--random", "0"]), @"
    exit 2
    --- stderr
    error: `--random` is `0`, expected a whole number from 1 to 10000
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["--random", "ten"]), @"
    exit 2
    --- stderr
    error: `--random` is `ten`, expected a whole number from 1 to 10000
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["o1", "--random", "2"]), @"
    exit 2
    --- stderr
    error: `FILE|NAME` cannot be used with `--random`
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["o1", "--worst", "2"]), @"
    exit 2
    --- stderr
    error: `FILE|NAME` cannot be used with `--worst`
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["--upstream", "bucket rate=1", "--write", "set"]), @"
    exit 2
    --- stderr
    error: `--upstream` cannot be used with `--write`
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["--random", "2", "--assert", "bans == 0"]), @"
    exit 2
    --- stderr
    error: `--random` cannot be used with `--assert`
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["--random", "2", "--clients", "3"]), @"
    exit 2
    --- stderr
    error: `--random` cannot be used with `--clients`
    hint: `tidegate simulate --help` shows what it takes
    ");
    assert_snapshot!(simulate(&["--random", "2", "--strategy", "fast"]), @"
    exit 2
    --- stderr
    error: `--strategy` is `fast`, expected `adaptive`, `aimd`, `fixed:RATE` (requests per second) or `none`
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
    assert_snapshot!(simulate(&["--random", "2", "--set", "initial_rate=quick"]), @"
    exit 2
    --- stderr
    error: --set initial_rate: `client[0].initial_rate` is `quick`, expected a number of requests per second from 0.000001 to 1000000000
    hint: `tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written
    ");
}

#[test]
fn reports_a_folder_that_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("set"), "").unwrap();
    let mut command = tidegate("simulate --random 1 --strategy fixed:1 --write set");
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_snapshot!(shown(&output), @"
    exit 1
    --- stderr
    error: cannot write to `set`: File exists (os error 17)
    ");
}
