"""Preemption: frees a node of jobs that the site allows to preempt. It is opt-in, and only for
single-node jobs of one user and account, the youngest first.

The node is reserved and drained before a job gets a signal, so that no other job starts on it. Each
job gets TERM and a grace time, and is then requeued (or cancelled, if so configured). A job that
did not succeed by itself is always requeued, even if node-convert is killed meanwhile."""

from __future__ import annotations

import time
from datetime import timedelta

from dnm.converters.claim import drain, reserve
from dnm.converters.conversion import NodeConversion, NotClaimed
from dnm.converters.slurm.commands import IGNORE_JOBS, SlurmRefused
from dnm.model.errors import ConverterError, SlurmError
from dnm.model.slinky import pods_of_job

JOBS = "preempt"  # key of the journal's facts: ids of the jobs that were judged preemptible
_TOUCHED = "touched."  # prefix of a key: this job got a signal
_BEGUN = "begun"  # its value until the job is requeued or cancelled
_AT_WORK = ("RUNNING", "SUSPENDED")
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_UNTIL_IDLE = timedelta(minutes=5)  # for remains of jobs; then the node is given back
_ITS_OWN_END = ("COMPLETED", "CANCELLED")  # by itself, or by its user; dnm's TERM makes it FAILED


def claim_from_jobs(conversion: NodeConversion) -> str:
    """Reserves and drains the node and removes its jobs. Raises NotClaimed before the first signal
    if a job must not be removed, later if a job stays. Then its jobs go on or are requeued."""
    jobs = conversion.journal.facts[JOBS].split(",")
    for job in jobs:
        _check_preemptible(conversion, job)
    reserve(conversion, IGNORE_JOBS)
    drain(conversion, may_work=True)
    running = conversion.read_jobs()
    unexpected = [job for job in running if job.id not in jobs]
    if unexpected:
        raise NotClaimed(f"job {unexpected[0].display_id} of {unexpected[0].user} got in")
    for job in jobs:
        _make_leave(conversion, job)
    _wait_for_idle(conversion)
    return f"preempted job {', '.join(jobs)}"


def make_good(conversion: NodeConversion) -> None:
    """Requeues each job that ended after dnm's TERM, before its node is given back to Slurm."""
    for key, state in conversion.journal.facts.items():
        job = key.removeprefix(_TOUCHED)
        if job == key or state != _BEGUN or conversion.settings.preempt_mode == "cancel":
            continue
        if not _is_on_node(conversion, job):
            _requeue(conversion, job)


def _check_preemptible(conversion: NodeConversion, job: str) -> None:
    if _TOUCHED + job in conversion.journal.facts:
        return
    try:
        record = conversion.patiently(lambda: conversion.slurm.read_job(job))
    except SlurmRefused as error:  # it has ended, and Slurm has forgotten it
        raise NotClaimed(f"job {job} is gone: {error.answer}") from error
    if pods := pods_of_job(record.admin_comment):
        raise NotClaimed(
            f"job {job} belongs to pod {pods[0]}, which slurm-bridge would delete with it"
        )
    if conversion.settings.preempt_mode == "cancel":
        return
    if not (record.is_requeueable and record.is_batch):
        raise NotClaimed(f"job {job} can't be requeued; PREEMPT_MODE=cancel would end it for good")


def _make_leave(conversion: NodeConversion, job: str) -> None:
    """Requeues or cancels a job that is on the node, or got dnm's signal in an earlier call."""
    settings = conversion.settings
    grace = settings.preempt_grace_seconds
    is_here = _is_on_node(conversion, job)
    if not is_here and _TOUCHED + job not in conversion.journal.facts:
        return
    conversion.writer.remember({_TOUCHED + job: _BEGUN})
    if grace and is_here:
        conversion.log(f"sends TERM to job {job}, {grace.total_seconds():g} s grace")
        try:
            conversion.slurm.terminate_job(job)
        except SlurmError as error:
            conversion.log(f"TERM to job {job} failed, continues: {error}")
        _wait_for_end(conversion, job, grace)
    if settings.preempt_mode == "cancel":
        conversion.change_slurm(
            lambda: conversion.slurm.cancel_job(job), lambda: not _is_on_node(conversion, job)
        )
    else:
        _requeue(conversion, job)
    conversion.writer.remember({_TOUCHED + job: settings.preempt_mode})


def _requeue(conversion: NodeConversion, job: str) -> None:
    conversion.log(f"requeues job {job} if necessary")
    try:
        conversion.change_slurm(
            lambda: conversion.slurm.requeue_job(job), lambda: _is_requeued(conversion, job)
        )
    except SlurmRefused as error:
        if _is_on_node(conversion, job):
            raise NotClaimed(f"job {job} stays: {error.answer}") from error
        raise ConverterError(
            f"job {job} has ended and Slurm does not requeue it ({error.answer}): submit it again"
        ) from error


def _is_requeued(conversion: NodeConversion, job: str) -> bool:
    """Returns whether the job is pending again, runs on another node, or has ended by itself."""
    state = conversion.slurm.read_job(job).state
    if state in _AT_WORK:
        return not _is_on_node(conversion, job)
    return state in _WAITING or state in _ITS_OWN_END


def _is_on_node(conversion: NodeConversion, job: str) -> bool:
    """Returns whether the job is on the node and is not completing already."""
    running = conversion.read_jobs()
    return any(item.id == job and item.state != "COMPLETING" for item in running)


def _wait_for_end(conversion: NodeConversion, job: str, patience: timedelta) -> None:
    deadline = time.monotonic() + patience.total_seconds()
    while time.monotonic() < deadline and _is_on_node(conversion, job):
        remaining = timedelta(seconds=max(0.0, deadline - time.monotonic()))
        conversion.wait(min(conversion.settings.poll_seconds, remaining))


def _wait_for_idle(conversion: NodeConversion) -> None:
    """Waits until the preempted jobs have left the node. Raises NotClaimed after a time-out."""

    def look() -> str:
        node = conversion.read_node()
        if conversion.slurm.read_jobs_on(conversion.node) or node.state.has_work:
            return f"it is still {node.state.text}"
        return ""

    try:
        conversion.wait_until(look, _UNTIL_IDLE)
    except ConverterError as error:
        raise NotClaimed(f"the preempted node does not become idle: {error}") from error
