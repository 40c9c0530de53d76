//! The stage `guest` of the check: tests that need the kernel datapath, run in one machine; and `guest-long`, all of them on two kernels.
//!
//! First come the tests listed in [`QUICK`] or [`ALL`], as built by `cargo test`; then the stock switch on
//! the kernel datapath (`ovs.sh`). Without a machine or a kernel, the stage reports that and passes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::script::quote;
use super::{KERNEL, Options, fetch, lacks, run_with};
use crate::programs::{Built, Compiler, build};
use crate::stages::{forward, skip};

/// Tests of the workspace for the machine.
struct GuestTest {
    package: &'static str,
    /// Name of the test target: of a file or folder in `tests`, or of the library.
    target: &'static str,
    /// Datapath of bridges of the default type.
    datapath: Under,
    /// Selected tests, and other arguments of the test program.
    args: &'static [&'static str],
}

/// The datapath for a test program (`SLUICE_DATAPATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    Userspace,
    Kernel,
}

/// Part of every check: features of only the kernel datapath, and a few of the common tests.
const QUICK: &[GuestTest] = &[
    GuestTest {
        package: "netlink",
        target: "kernel",
        datapath: Under::Kernel,
        args: &[
            "--exact",
            "connections::connections_are_listed_and_deleted_one_by_one_by_zone_and_together",
            "connections::timeout_policies_are_set_replaced_listed_and_deleted",
            "flows::tunnels_are_held_and_set_as_written",
            "others::the_kernel_executes_actions_of_other_programs",
        ],
    },
    // A fresh build of the switch runs in the machine as it does outside.
    GuestTest {
        package: "sluiced",
        target: "net",
        datapath: Under::Userspace,
        args: &["--exact", "traffic::hosts_reach_each_other_without_duplicates"],
    },
    // Tunnels in user space, whose partners are devices that only this kernel has.
    GuestTest {
        package: "sluiced",
        target: "net",
        datapath: Under::Userspace,
        args: &[
            "--test-threads",
            "2",
            "--exact",
            "partners::one_device_of_each_kind_answers",
            // The kernel has all disciplines.
            "qos::kernels_take_the_disciplines",
        ],
    },
    GuestTest {
        package: "sluiced",
        target: "net",
        datapath: Under::Kernel,
        args: &[
            "--test-threads",
            "3",
            "--exact",
            "daemon::taps_outlive_the_daemon",
            "kernel::a_removed_datapath_is_recreated",
            "kernel_ct::one_side_begins_connections_and_marks_belong_to_them",
            "kernel_ct::sources_and_destinations_are_translated",
            "kernel::established_traffic_survives_a_kill",
            "kernel::hosts_reach_each_other_and_stock_tools_agree",
            "kernel::samples_show_the_tunnels_that_packets_leave_by",
            "kernel_queues::set_queue_chooses_the_class_of_the_port",
            "qos::kernels_take_the_disciplines",
            "qos::the_kernel_polices",
            "openflow::actions::headers_are_rewritten_with_their_checksums",
            "traffic::fragments_pass",
            "tunnels::tunnels_share_a_device_and_flows_select_them",
        ],
    },
];

/// A machine of `guest-long`, which has a time limit of its own.
struct Part {
    name: &'static str,
    tests: &'static [GuestTest],
    memory_mib: u32,
}

/// The machines of `guest-long` on each kernel, in turn.
const PARTS: [Part; 2] = [
    Part { name: "the kernel datapath", tests: ALL, memory_mib: 1024 },
    // A deployment has a dozen daemons; two run at a time.
    Part { name: "OVN", tests: OVN, memory_mib: 1536 },
];

/// Messages to the kernel, and all tests of traffic and of the stock tools, on the kernel datapath. Tests of
/// the userspace datapath alone that are left out would measure it or skip themselves; the others print
/// `SKIP`.
const ALL: &[GuestTest] = &[
    GuestTest {
        package: "sluiced",
        target: "net",
        datapath: Under::Userspace,
        args: &["--test-threads", "2", "partners::", "lacp::"],
    },
    GuestTest {
        package: "netlink",
        target: "kernel",
        datapath: Under::Kernel,
        args: &["--test-threads", "2"],
    },
    GuestTest {
        package: "sluiced",
        target: "net",
        datapath: Under::Kernel,
        args: &[
            "--skip",
            "ablation::",
            "--skip",
            "dummy::",
            "--skip",
            "soak::",
            "--skip",
            "syscalls::",
            "--skip",
            "threads::",
            "--skip",
            "upcall_bench::",
            "--skip",
            "upcall_cost::",
        ],
    },
];

/// The probes of OVN on the kernel datapath. In user space they are the stage `ovn`.
const OVN: &[GuestTest] = &[GuestTest {
    package: "sluiced",
    target: "ovn",
    datapath: Under::Kernel,
    args: &["--include-ignored", "--test-threads", "2", "ovn_on_sluice::"],
}];

/// Kernels of `guest-long`: the one of Debian's release, and one of its backports.
const KERNELS: [&str; 2] = [KERNEL, "6.12"];

/// Time limit of the machine of `guest`: several times that of an idle host.
const LIMIT: Duration = Duration::from_secs(1200);

/// Time limit of each machine of `guest-long`.
const LONG_LIMIT: Duration = Duration::from_secs(3600);

/// Runs the stage `guest`; true on success. Adds omissions to `skips`.
///
/// # Errors
/// If a test cannot be built or is missing, or the machine fails.
pub(crate) fn run(root: &Path, skips: &mut Vec<String>) -> Result<bool> {
    run_tests(
        root,
        skips,
        "guest",
        &Run { tests: QUICK, kernel: KERNEL, limit: LIMIT, memory_mib: 1024, profile: "test" },
    )
}

/// Runs the stage `guest-long` likewise: a machine for each of [`PARTS`] on each of [`KERNELS`]. Prints their run times.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_long(root: &Path, skips: &mut Vec<String>) -> Result<bool> {
    let mut good = true;
    for kernel in KERNELS {
        for Part { name, tests, memory_mib } in PARTS {
            println!("guest-long: {name}, kernel {kernel}");
            let start = Instant::now();
            let run = Run { tests, kernel, limit: LONG_LIMIT, memory_mib, profile: "long" };
            good &= run_tests(root, skips, "guest-long", &run)?;
            let minutes = start.elapsed().as_secs_f64() / 60.0;
            println!("guest-long: {name}, kernel {kernel}: {minutes:.1} minutes");
        }
    }
    Ok(good)
}

/// Parameters of one machine.
struct Run {
    tests: &'static [GuestTest],
    kernel: &'static str,
    limit: Duration,
    memory_mib: u32,
    /// Cargo's profile of the tests.
    profile: &'static str,
}

fn run_tests(root: &Path, skips: &mut Vec<String>, stage: &str, run: &Run) -> Result<bool> {
    if let Some(reason) = lacks() {
        return skip(skips, stage, &reason);
    }
    let order = Options {
        timeout: Some(run.limit),
        kernel: run.kernel.to_owned(),
        memory_mib: run.memory_mib,
        ..Options::default()
    };
    if let Err(why) = fetch(root, &order.kernel) {
        return skip(skips, stage, &format!("no kernel: {why:#}"));
    }
    let built = build(root, run.profile, Compiler::Rustc)?;
    ensure!(built.complete, "the tests do not build\n{}", built.diagnostics.concat());
    let command = vec!["sh".to_owned(), "-c".to_owned(), script(run.tests, &built.programs)?];
    let order = Options { command, ..order };
    let (from_out, mut out) = std::io::pipe().context("no pipe")?;
    let (from_err, mut err) = std::io::pipe().context("no pipe")?;
    let heard = std::sync::Mutex::new(Vec::new());
    let status = std::thread::scope(|scope| {
        scope.spawn(|| forward(from_out, std::io::stdout(), &heard));
        scope.spawn(|| forward(from_err, std::io::stderr(), &heard));
        let status = run_with(root, &order, &mut out, &mut err);
        // The threads end once all writers are gone.
        drop((out, err));
        status
    });
    skips.append(&mut heard.into_inner().unwrap_or_default());
    Ok(status? == 0)
}

/// The machine's script: every test, then the stock switch; it fails if one of them does.
///
/// # Errors
/// If a test was not built.
fn script(tests: &[GuestTest], built: &[Built]) -> Result<String> {
    let mut text = "status=0\n".to_owned();
    for GuestTest { package, target, datapath, args } in tests {
        let Some(found) = built.iter().find(|b| b.package == *package && b.target == *target) else {
            bail!("the package {package} has no test program {target}");
        };
        let under = match datapath {
            Under::Userspace => "",
            Under::Kernel => "SLUICE_DATAPATH=kernel ",
        };
        let words: Vec<String> = args.iter().map(|a| quote(a)).collect();
        text += &format!(
            "echo {}\n(cd {dir} && {under}CARGO_MANIFEST_DIR={dir} RUSTC_BOOTSTRAP=1 {} {} -Zunstable-options --report-time) || status=1\n",
            quote(&format!("guest: {package}, {target}: {}", args.join(" "))),
            quote(&found.program),
            words.join(" "),
            dir = quote(&found.dir),
        );
    }
    text += &format!("sh -c {} || status=1\nexit $status\n", quote(include_str!("ovs.sh")));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn one_failure_fails_the_machine_and_stops_nothing() {
        let of = |program: &str| Built {
            package: "a".to_owned(),
            target: program.to_owned(),
            program: program.to_owned(),
            dir: "/".to_owned(),
        };
        let built = ["true", "false", "sh"].map(of);
        let test = |target, args| GuestTest { package: "a", target, datapath: Under::Kernel, args };
        let status = |tests: &[GuestTest]| {
            let script = script(tests, &built).unwrap();
            // Not the stock switch, here.
            let script = script.split("sh -c").next().unwrap().to_owned() + "exit $status\n";
            let out = Command::new("sh").args(["-c", &script]).output().unwrap();
            (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
        };
        assert_eq!(status(&[test("true", &[])]).0, Some(0));
        let all = status(&[test("false", &[]), test("sh", &["-c", "echo $SLUICE_DATAPATH it\\'s all"])]);
        assert_eq!(
            all,
            (
                Some(1),
                "guest: a, false: \nguest: a, sh: -c echo $SLUICE_DATAPATH it\\'s all\nkernel it's all\n"
                    .to_owned()
            )
        );
        assert!(script(&[test("other", &[])], &built).is_err());
    }
}
