//! Parsing and formatting of sizes and amounts of money.

/// Parses a number of bytes such as `800`, `800KB` or `1.5 GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number of bytes, such as 5000000, 800KB or 2GB".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is not negative, and a fraction of a unit needs no single-byte precision"
    )]
    Ok((number * factor as f64) as u64)
}

/// Formats a number of bytes so that it parses back without loss: `64MiB`, `1000`.
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
    let (whole, rest) = (micro / 1_000_000, micro % 1_000_000);
    let rest = format!("{rest:06}");
    let (cents, further) = rest.split_at(2);
    format!("${whole}.{cents}{}", further.trim_end_matches('0'))
}
