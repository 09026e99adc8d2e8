//! Measures CPU time, for tests that assert how work grows with the size of its input.

use std::time::Duration;

/// Returns the CPU time that this thread has used, or `None` if the system does not report it.
pub fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split(' ').next()?.parse().ok()?))
}

/// Runs `work` with the small and the large size, and fails if its CPU time grows clearly faster
/// than the size. The time may grow by up to 4 times the ratio of the sizes. Quadratic work
/// therefore fails if the sizes differ by a factor of 32.
///
/// Passes without a measurement if the system reports no CPU time.
///
/// # Errors
///
/// Returns a description of the measured growth.
pub fn assert_linear_growth(
    name: &str,
    (small, large): (usize, usize),
    mut work: impl FnMut(usize),
) -> Result<(), String> {
    /// Lower bound for the small size's time in the comparison. Shorter times are only a few clock
    /// ticks and therefore not significant.
    const TICKS: Duration = Duration::from_millis(10);
    const MARGIN: f64 = 4.0;
    let mut time_of = |size: usize| {
        let before = processor_time();
        work(size);
        before
            .zip(processor_time())
            .map_or(Duration::ZERO, |(before, after)| after.saturating_sub(before))
    };
    let (short, long) = (time_of(small), time_of(large));
    let growth = long.as_secs_f64() / short.max(TICKS).as_secs_f64();
    let linear = f64::from(u32::try_from(large / small).unwrap_or(u32::MAX));
    println!("FIGURE {name}: {short:.0?} for {small}, {long:.0?} for {large}");
    if growth > linear * MARGIN {
        return Err(format!("{name}: {growth:.0} times the time for {linear} times the size"));
    }
    Ok(())
}
