//! Commands that run several at once, each with its output in one piece.
//!
//! Jobs start in the order given, as many at once as there are lanes. A failed job stops no other.

use std::collections::VecDeque;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A command with the name of its row.
#[derive(Debug)]
pub(crate) struct Job {
    /// Its name in output and summary.
    pub(crate) name: String,
    /// The command; its standard input is empty, its output is collected.
    pub(crate) command: Command,
}

/// The end of a job.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Name of the job.
    pub(crate) name: String,
    /// How long it ran.
    pub(crate) time: Duration,
    /// True if it exited with 0.
    pub(crate) good: bool,
    /// All that it wrote, both streams in the order of their lines.
    pub(crate) output: String,
}

/// Runs `jobs` in `lanes` lanes, and prints the output of each when it ends. The order is the order of their ends.
pub(crate) fn run(jobs: Vec<Job>, lanes: usize) -> Vec<Ended> {
    let (waiting, ended) = (Mutex::new(VecDeque::from(jobs)), Mutex::new(Vec::new()));
    let next = || waiting.lock().ok()?.pop_front();
    std::thread::scope(|scope| {
        for _lane in 0..lanes {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let end = run_one(job);
                    let verdict = if end.good { "ok" } else { "FAILED" };
                    let minutes = end.time.as_secs_f64() / 60.0;
                    if let Ok(mut ended) = ended.lock() {
                        println!("-- {}: {minutes:.2} minutes, {verdict}\n{}", end.name, end.output);
                        ended.push(end);
                    }
                }
            });
        }
    });
    ended.into_inner().unwrap_or_default()
}

fn run_one(Job { name, command }: Job) -> Ended {
    println!("-- {name}: begins");
    let start = Instant::now();
    let (good, output) = collect(command).unwrap_or_else(|why| (false, format!("  {why:#}\n")));
    Ended { name, time: start.elapsed(), good, output }
}

/// Whether the command exited with 0, and its output.
fn collect(mut command: Command) -> Result<(bool, String)> {
    let (mut from, to) = std::io::pipe().context("no pipe")?;
    command.stdin(Stdio::null()).stdout(to.try_clone().context("no pipe")?).stderr(to);
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    // The command holds the writing ends, too.
    drop(command);
    let mut output = Vec::new();
    from.read_to_end(&mut output).context("cannot read the output")?;
    let good = child.wait().context("cannot wait for the job")?.success();
    Ok((good, String::from_utf8_lossy(&output).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn all_jobs_run_and_a_failure_is_reported() {
        let lost = Job { name: "lost".to_owned(), command: Command::new("/nonexistent") };
        let jobs = vec![shell("good", "echo one; echo two >&2"), shell("bad", "exit 3"), lost];
        let mut ended = run(jobs, 2);
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        let row = |e: &Ended| (e.name.clone(), e.good);
        assert_eq!(
            ended.iter().map(row).collect::<Vec<_>>(),
            [("bad".to_owned(), false), ("good".to_owned(), true), ("lost".to_owned(), false)]
        );
        assert_eq!(ended[1].output, "one\ntwo\n");
        assert!(ended[2].output.contains("cannot run"), "{}", ended[2].output);
    }

    /// Two jobs that wait for each other end only if they run at once.
    #[test]
    fn jobs_run_at_once() {
        let dir = std::env::temp_dir().join(format!("xtask-jobs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let meet = |own: &str, other: &str| {
            let (own, other) = (dir.join(own), dir.join(other));
            let script =
                "i=0; while ! [ -e OTHER ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done; [ -e OTHER ]";
            format!("touch {}; {}", own.display(), script.replace("OTHER", &other.display().to_string()))
        };
        let ended = run(vec![shell("a", &meet("a", "b")), shell("b", &meet("b", "a"))], 2);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(ended.len() == 2 && ended.iter().all(|e| e.good), "{ended:?}");
    }
}
