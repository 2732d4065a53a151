//! CronJob.

use jiff::tz::TimeZone;
use shoal_objects::{Errors, Path, Value, meta};

use super::Rules;
use super::access::{bool_at, child_mut, field, part, set_default, set_default_str, str_at};
use super::pod::defaults::default_template_of;
use super::pod::warnings;
use super::{checks, cron, job};

/// Names of jobs are the CronJob's with 11 characters added.
const MAX_NAME: usize = 52;

/// The rules of CronJob.
pub const RULES: Rules = Rules { default, validate, warnings, ..Rules::NONE };

fn default(cron_job: &mut Value) {
    let Some(spec) = child_mut(cron_job, "spec") else { return };
    set_default_str(spec, "concurrencyPolicy", "Allow");
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = child_mut(spec, "jobTemplate") {
        child_mut(template, "metadata");
        if let Some(job_spec) = child_mut(template, "spec") {
            default_template_of(job_spec);
        }
    }
}

fn validate(cron_job: &Value, errors: &mut Errors) {
    let spec = part(cron_job, "spec");
    let path = Path::new("spec");
    match str_at(spec, "schedule") {
        "" => errors.required(&path.child("schedule"), ""),
        schedule => {
            if let Err(message) = cron::check(schedule) {
                errors.invalid_str(&path.child("schedule"), schedule, &message);
            }
            if schedule.contains("TZ") {
                let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                errors.invalid_str(&path.child("schedule"), schedule, detail);
            }
        }
    }
    checks::not_negative(spec, "startingDeadlineSeconds", &path, errors);
    if let Some(zone) = field(spec, "timeZone").and_then(Value::as_str)
        && let Err(message) = check_time_zone(zone)
    {
        errors.invalid_str(&path.child("timeZone"), zone, &message);
    }
    checks::one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
    validate_job_template(spec, &path.child("jobTemplate"), errors);
    checks::not_negative(spec, "successfulJobsHistoryLimit", &path, errors);
    checks::not_negative(spec, "failedJobsHistoryLimit", &path, errors);
    let name = meta::name(cron_job);
    if name.len() > MAX_NAME {
        let detail = format!("must be no more than {MAX_NAME} characters");
        errors.invalid_str(&Path::new("metadata").child("name"), name, &detail);
    }
}

fn validate_job_template(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let job_spec = part(part(spec, "jobTemplate"), "spec");
    let path = path.child("spec");
    job::validate_spec(job_spec, &path, errors);
    if let Some(selector) = field(job_spec, "selector") {
        errors.invalid(&path.child("selector"), selector, "`selector` will be auto-generated");
    }
    if bool_at(job_spec, "manualSelector") {
        errors.not_supported(&path.child("manualSelector"), "true", &["nil", "false"]);
    }
}

fn warnings(cron_job: &Value) -> Vec<String> {
    let mut warnings = warnings::of_name(cron_job, "Pod names and hostnames");
    let spec = Path::new("spec");
    let path = spec.child("jobTemplate");
    let job_spec = part(part(part(cron_job, "spec"), "jobTemplate"), "spec");
    warnings.extend(warnings::of_template(job_spec, &path.child("spec")));
    warnings
}

fn check_time_zone(zone: &str) -> Result<(), String> {
    if zone.is_empty() {
        return Err("timeZone must be nil or non-empty string".to_owned());
    }
    if zone.to_lowercase().starts_with("local") {
        let text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        return Err(text.to_owned());
    }
    if zone.contains("..") || zone.starts_with(['/', '\\']) {
        return Err("time: invalid location name".to_owned());
    }
    TimeZone::get(zone).map(|_| ()).map_err(|_| format!("unknown time zone {zone}"))
}
