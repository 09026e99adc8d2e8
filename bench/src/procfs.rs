//! Reads CPU times, memory, disk writes and command lines of processes from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// Duration of a clock tick, the unit of the CPU times in `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// The fields of `/proc/PID/stat` that the benchmark uses.
#[derive(Debug)]
pub(crate) struct ProcessStat {
    pub(crate) id: u32,
    /// Name of the program, without its directory.
    pub(crate) name: String,
    /// Process id of the parent.
    pub(crate) parent: u32,
    /// CPU time of the process, in steps of 10 milliseconds.
    pub(crate) cpu_time: Duration,
    /// The part of the CPU time that the kernel used, for example for network and disk access.
    pub(crate) system_time: Duration,
    /// CPU time of the children that have exited.
    pub(crate) exited_children_cpu_time: Duration,
}

impl ProcessStat {
    pub(crate) fn read(id: u32) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        Self::parse(id, &stat).with_context(|| format!("/proc/{id}/stat has an unexpected format"))
    }

    fn parse(id: u32, stat: &str) -> Option<Self> {
        // The process name is in parentheses and may contain spaces and parentheses.
        let (beginning, rest) = stat.rsplit_once(')')?;
        let (_, name) = beginning.split_once('(')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Self {
            id,
            name: name.to_owned(),
            parent: number(1)?,
            cpu_time: TICK * (number(11)? + number(12)?),
            system_time: TICK * number(12)?,
            exited_children_cpu_time: TICK * (number(13)? + number(14)?),
        })
    }
}

/// Returns the threads of a process. Their CPU times are those of the threads.
pub(crate) fn threads(id: u32) -> anyhow::Result<Vec<ProcessStat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{id}/task"))? {
        // A thread may end at any time, so skip threads that cannot be read.
        let stat = fs::read_to_string(entry?.path().join("stat"));
        found.extend(stat.ok().and_then(|stat| ProcessStat::parse(id, &stat)));
    }
    Ok(found)
}

/// Returns all processes of this machine.
pub(crate) fn processes() -> anyhow::Result<Vec<ProcessStat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let id = entry?.file_name().to_string_lossy().parse::<u32>().ok();
        // A process may exit at any time, so skip processes that cannot be read.
        found.extend(id.and_then(|id| ProcessStat::read(id).ok()));
    }
    Ok(found)
}

/// Returns the command line of a process, including the name of the program.
pub(crate) fn arguments(id: u32) -> anyhow::Result<Vec<String>> {
    let line = fs::read(format!("/proc/{id}/cmdline"))?;
    let arguments = line.split(|byte| *byte == 0);
    Ok(arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect())
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
