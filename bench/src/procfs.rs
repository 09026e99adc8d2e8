//! Reads CPU times, memory and disk writes of processes from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// Duration of a clock tick, the unit of the CPU times in `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// The fields of `/proc/PID/stat` that the benchmark uses.
#[derive(Debug)]
pub(crate) struct ProcessStat {
    /// CPU time of the process, in steps of 10 milliseconds.
    pub(crate) cpu_time: Duration,
}

impl ProcessStat {
    pub(crate) fn read(id: u32) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        Self::parse(&stat).with_context(|| format!("/proc/{id}/stat has an unexpected format"))
    }

    fn parse(stat: &str) -> Option<Self> {
        // The process name is in parentheses and may contain spaces and parentheses.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Self { cpu_time: TICK * (number(11)? + number(12)?) })
    }
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_memory(id: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = kib.with_context(|| format!("/proc/{id}/status has no VmRSS field"))?.parse()?;
    Ok(kib << 10)
}

/// Returns the number of bytes that a process has written to disks.
pub(crate) fn written_bytes(id: u32) -> anyhow::Result<u64> {
    let io = fs::read_to_string(format!("/proc/{id}/io"))?;
    let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    let bytes = bytes.with_context(|| format!("/proc/{id}/io has no write_bytes field"))?;
    Ok(bytes.trim().parse()?)
}
