//! Parses and formats byte sizes and amounts of money.

/// Formats a number of bytes exactly, so that parsing returns the same number: `64MiB`, `1000`.
pub(crate) fn exact_bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(size, _)| bytes > 0 && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(size, unit)| format!("{}{unit}", bytes / size))
}

/// Converts dollars to millionths of a dollar; `None` if the amount is out of range.
pub(crate) fn micro_dollars(dollars: f64) -> Option<u64> {
    let is_sum = (0.0..=1e9).contains(&dollars);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is not negative and in range"
    )]
    is_sum.then(|| (dollars * 1e6).round() as u64)
}

/// Formats millionths of a dollar: `$2.50`, `$0.000125`.
pub(crate) fn dollars(micro: u64) -> String {
    let (dollars, rest) = (micro / 1_000_000, micro % 1_000_000);
    let rest = format!("{rest:06}");
    let (cents, further) = rest.split_at(2);
    format!("${dollars}.{cents}{}", further.trim_end_matches('0'))
}
