//! Decides which traces are exported, like the samplers of OpenTelemetry's SDKs.

/// A sampler of OpenTelemetry. The default follows the caller's decision and samples all other
/// traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// The share of traces without a caller that are sampled, from 0 to 1.
    ratio: f64,
    /// Whether a caller's decision applies to the spans in its trace.
    is_parent_based: bool,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { ratio: 1.0, is_parent_based: true }
    }
}

impl Sampler {
    /// Returns the sampler for the values of `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`.
    /// The argument applies only to ratios and defaults to 1.
    pub fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        let (root, is_parent_based) = match name.strip_prefix("parentbased_") {
            Some(root) => (root, true),
            None => (name, false),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => parse_ratio(argument)?,
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER is \"{name}\"; use always_on, always_off, traceidratio, \
                     or one of them after parentbased_"
                ));
            }
        };
        Ok(Self { ratio, is_parent_based })
    }

    /// Returns whether a span is exported. `parent` is the caller's decision, if there is a caller.
    pub fn is_sampled(&self, trace: &[u8; 16], parent: Option<bool>) -> bool {
        if let Some(parent) = parent.filter(|_| self.is_parent_based) {
            return parent;
        }
        // The random half of a trace id decides, as in OpenTelemetry's SDKs, so that all processes
        // with the same ratio sample the same traces.
        let [.., a, b, c, d, _, _, _, _] = *trace;
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.ratio * 4_294_967_296.0
    }
}

fn parse_ratio(argument: Option<&str>) -> Result<f64, String> {
    let argument = argument.unwrap_or("1");
    let ratio = argument.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| {
        format!("OTEL_TRACES_SAMPLER_ARG is \"{argument}\"; use a number from 0 to 1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(first: u8) -> [u8; 16] {
        let mut trace = [0xff; 16];
        trace[8] = first;
        trace
    }

    #[test]
    fn samplers_decide_like_their_names() {
        let (low, high) = (trace(0), trace(0xff));
        let half = Some("0.5");
        for (name, argument, expected) in [
            // Decisions: low id, high id, low id below an unsampled and a sampled caller.
            ("always_on", None, [true, true, true, true]),
            ("always_off", None, [false, false, false, false]),
            ("traceidratio", half, [true, false, true, true]),
            ("traceidratio", None, [true, true, true, true]),
            ("parentbased_always_on", None, [true, true, false, true]),
            ("parentbased_always_off", None, [false, false, false, true]),
            ("parentbased_traceidratio", half, [true, false, false, true]),
        ] {
            let sampler = Sampler::parse(name, argument).unwrap();
            let decisions = [
                sampler.is_sampled(&low, None),
                sampler.is_sampled(&high, None),
                sampler.is_sampled(&low, Some(false)),
                sampler.is_sampled(&low, Some(true)),
            ];
            assert_eq!(decisions, expected, "{name}");
        }
        assert_eq!(Sampler::parse("parentbased_always_on", None), Ok(Sampler::default()));
    }

    #[test]
    fn unknown_samplers_and_ratios_are_rejected() {
        for (name, argument) in
            [("jaeger_remote", None), ("traceidratio", Some("2")), ("traceidratio", Some("half"))]
        {
            assert!(Sampler::parse(name, argument).is_err(), "{name} {argument:?}");
        }
    }
}
