/* SPDX-License-Identifier: MIT */
/* The whole of the library.
 *
 * The interface is *unstable* until version 1.0.0: structs grow and names change from one minor
 * version to the next, and the soname stays libmemtally.so.0. Build against the version that you
 * run. */
#ifndef MEMTALLY_MEMTALLY_H
#define MEMTALLY_MEMTALLY_H

#include <memtally/advise.h>
#include <memtally/alarm.h>
#include <memtally/budget.h>
#include <memtally/calibrate.h>
#include <memtally/category.h>
#include <memtally/compare.h>
#include <memtally/depth.h>
#include <memtally/doctor.h>
#include <memtally/drive.h>
#include <memtally/error.h>
#include <memtally/error_code.h>
#include <memtally/gpu.h>
#include <memtally/graphs.h>
#include <memtally/growth.h>
#include <memtally/guard.h>
#include <memtally/history.h>
#include <memtally/host.h>
#include <memtally/job.h>
#include <memtally/measure.h>
#include <memtally/model.h>
#include <memtally/model_file.h>
#include <memtally/monitor.h>
#include <memtally/place.h>
#include <memtally/pool.h>
#include <memtally/predict.h>
#include <memtally/processor.h>
#include <memtally/provenance.h>
#include <memtally/recording.h>
#include <memtally/rehearsal.h>
#include <memtally/rehearsal_events.h>
#include <memtally/residue.h>
#include <memtally/run.h>
#include <memtally/schedule.h>
#include <memtally/scope.h>
#include <memtally/settings.h>
#include <memtally/snapshot.h>
#include <memtally/tally.h>
#include <memtally/track.h>
#include <memtally/units.h>
#include <memtally/verdict.h>

#endif
