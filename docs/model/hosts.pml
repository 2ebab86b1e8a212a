/* A model of two hosts with one registry in Kubernetes, two nodes, and a cap of one. Spin checks
   every interleaving of their steps with one crash and one suspension (sleep). Comments name the
   function of dnm that each step models. README.md in this directory describes the checked promises
   and the mutants.

   The model counts no versions: `*_fresh` is whether a host knows the current version of an object.
   It counts no fencing numbers: `newest` is which host's number is in the registry. */

#define NODES 2
#define CAP 1
#define NOBODY 0

#define BATCH 0   /* in Slurm */
#define LEAVING 1 /* a converter is moving it to Kubernetes */
#define KUBE 2
#define BACK 3    /* a converter is returning it to Slurm */

/* --- the cluster ------------------------------------------------------------------------- */
byte lease_holder = NOBODY;
bool lease_fresh[3], reg_fresh[3], doc_fresh[3];
bool newest[3];                 /* the registry has the number of this host's run */
bool asked = false;             /* the registry: a request, its host, and the lent nodes */
byte asked_by = NOBODY;
bool lent[NODES], returning[NODES];
byte amount = 0;                /* what the ledger adds to the queue */
byte node[NODES];               /* BATCH at first */
byte converter_of[NODES];       /* the host whose converter moves it */
bool demand = true;
bool fenced[3];                 /* only for an assertion: a later run has fenced this run */

/* With REST, Spin checks whether each execution ends in a steady state. A run that reads the same
   as the previous run changes nothing again, so a host starts a run only after a change (news). */
#ifdef REST
bool news[3];
#define CHANGED news[1] = true; news[2] = true
#define LOOKS news[me] && IS_FREE(me) -> news[me] = false;
#else
#define CHANGED skip
#define LOOKS STEP
#endif
#define IS_FREE(me) \
  (lease_holder == NOBODY || lease_holder == me || asleep[lease_holder] || !at_work[lease_holder])

/* --- the hosts --------------------------------------------------------------------------- */
bool at_work[3], asleep[3], killed[3], dead[3];
bool late[3];                   /* was suspended for longer than its Lease is valid */
byte crashes = 1, sleeps = 1, changes = 1;

inline check_cap() {
  assert((node[0] != BATCH) + (node[1] != BATCH) <= CAP)
}

/* Guards each step of a host: none happens while the host is suspended. */
#define STEP !asleep[me] ->

/* LeaseLock.keep: renews the Lease if its version is unchanged; otherwise the run ends. */
#define KEEP \
  atomic { STEP \
    if \
    :: !late[me] \
    :: late[me] && lease_fresh[me] && lease_holder == me -> \
       late[me] = false; lease_fresh[3 - me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }

/* LeaseLock.keep(anew=True): renews the Lease at the API server, whatever this host's clock is. */
#define RENEW \
  atomic { STEP \
    if \
    :: lease_fresh[me] && lease_holder == me -> \
       late[me] = false; lease_fresh[3 - me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }

/* LeaseLock.take, then the first write, of the number: after it no earlier run can write. */
#define TAKE \
  atomic { STEP \
    if \
    :: lease_fresh[me] -> \
       lease_holder = me; lease_fresh[3 - me] = false; fenced[me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }; \
  KEEP; \
  atomic { STEP \
    if \
    :: REGISTRY_MAY -> \
       newest[me] = true; newest[3 - me] = false; reg_fresh[3 - me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }

/* KubeState.write: writes the complete registry if its version is the one that this run knows. */
#ifdef MUTANT_WRITE
#define REGISTRY_MAY (true)
#else
#define REGISTRY_MAY (reg_fresh[me])
#endif
#define WRITE \
  atomic { STEP \
    if \
    :: REGISTRY_MAY -> \
       assert(newest[me]);      /* a run with an old number never writes */ \
       asked = c_asked; asked_by = c_by; \
       lent[0] = c_lent[0]; lent[1] = c_lent[1]; \
       returning[0] = c_returning[0]; returning[1] = c_returning[1]; \
       reg_fresh[3 - me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }

/* Deletes the knowledge of a run at its end. */
#define FORGET \
  c_asked = false; c_by = 0; n = 0; want = 0; back = 0; starts = false; changed = false; \
  follows = false; differs = false; \
  c_lent[0] = false; c_lent[1] = false; c_returning[0] = false; c_returning[1] = false; \
  saw[0] = 0; saw[1] = 0; saw_converter[0] = 0; saw_converter[1] = 0; \
  lease_fresh[me] = false; reg_fresh[me] = false; doc_fresh[me] = false

proctype Host(byte me) {
  bool c_asked, c_lent[NODES], c_returning[NODES], starts, changed, follows, differs;
  byte c_by, n, want, back;
  byte saw[NODES], saw_converter[NODES];

again:
  { /* run_pass */
    atomic { LOOKS at_work[me] = true; late[me] = false }
    /* LeaseLock.check: another host is active, unless its Lease has not changed for its duration.
       If the holder is this host, its earlier run has died, because this run has the file lock. */
    atomic { STEP
      if
      :: IS_FREE(me) -> lease_fresh[me] = true; follows = (lease_holder != NOBODY)
      :: else -> goto stand_by
      fi }
    /* KubeState.read */
    atomic { STEP
      reg_fresh[me] = true;
      c_asked = asked; c_by = asked_by;
      c_lent[0] = lent[0]; c_lent[1] = lent[1];
      c_returning[0] = returning[0]; c_returning[1] = returning[1] }
    /* follow_run: the previous run did not release the Lease and may be suspended. The queue
       document gets a new version, so that a late write of that run fails. */
    if
    :: follows ->
       TAKE;
#ifndef MUTANT_FENCE
       atomic { STEP doc_fresh[me] = true };
       RENEW;
       atomic { STEP
         if
         :: doc_fresh[me] ->
            doc_fresh[3 - me] = false;
            if
            :: lease_holder == me -> fenced[3 - me] = true
            :: else
            fi
         :: else -> goto stand_by
         fi }
#endif
    :: else
    fi;
    /* take_snapshot */
    atomic { STEP
      saw[0] = node[0]; saw[1] = node[1];
      saw_converter[0] = converter_of[0]; saw_converter[1] = converter_of[1] }
    /* make_plan: a pure function */
    d_step {
      starts = false; changed = false; back = NODES;
      for (n : 0 .. NODES - 1) {
        if
        :: c_asked && saw[n] == KUBE && !c_lent[n] ->
           c_lent[n] = true; c_asked = false; c_by = NOBODY; changed = true
        :: else
        fi;
        if
        :: c_lent[n] && c_returning[n] && saw[n] == BATCH ->
           c_lent[n] = false; c_returning[n] = false; changed = true
        :: else
        fi
      }
#ifndef MUTANT_DEADLINE
      /* Ends a request for which no converter is running on any host. */
      if
      :: c_asked && saw_converter[0] == NOBODY && saw_converter[1] == NOBODY ->
         c_asked = false; c_by = NOBODY; changed = true
      :: else
      fi;
#endif
      if
      :: demand && !c_asked && c_lent[0] + c_lent[1] + c_asked < CAP &&
         (saw[0] != BATCH) + (saw[1] != BATCH) < CAP ->
         c_asked = true; c_by = me; starts = true; changed = true
      :: else
      fi;
      for (n : 0 .. NODES - 1) {
        if
        :: !demand && c_lent[n] && !c_returning[n] && saw[n] == KUBE ->
           c_returning[n] = true; changed = true
        :: else
        fi;
        if
        :: c_returning[n] && saw[n] == KUBE && saw_converter[n] == NOBODY -> back = n
        :: else
        fi
      }
      want = (c_lent[0] && !c_returning[0]) + (c_lent[1] && !c_returning[1])
    }
    /* If nothing changes, the run writes nothing. */
    if
    :: !changed && back == NODES && amount == want -> goto give_up
    :: else
    fi;
    if
    :: !follows -> TAKE
    :: else
    fi;

#ifdef MUTANT_ORDER
    /* The converter is started before the request is written. */
    if
    :: starts -> atomic { STEP
         CHANGED;
         if
         :: node[0] == BATCH -> node[0] = LEAVING; converter_of[0] = me; check_cap()
         :: else -> node[1] = LEAVING; converter_of[1] = me; check_cap()
         fi }; starts = false
    :: else
    fi;
#endif

    /* Actuator._replace_registry: the run writes the request before it acts. */
    KEEP; WRITE;

    /* apply_queue_edit: reads the document again, renews the Lease, and writes the document if its
       version is unchanged since the read. */
    KEEP;
    atomic { STEP doc_fresh[me] = true; differs = (amount != want) }
    if
    :: differs ->
#ifndef MUTANT_LEDGER
       RENEW;
#endif
       atomic { STEP
         if
         :: doc_fresh[me] ->
            assert(!fenced[me]);   /* a replaced and fenced run never writes */
            amount = want; doc_fresh[3 - me] = false; CHANGED
         :: else -> goto stand_by
         fi }
    :: else
    fi;

    if
    :: starts ->
       KEEP;
       /* ConverterCall: the child process checks the clock, then becomes the converter. */
       atomic { STEP
         CHANGED;
         if
#ifndef MUTANT_CLOCK
         :: late[me]
         :: !late[me] && node[0] == BATCH ->
#else
         :: node[0] == BATCH ->
#endif
            assert(newest[me]);
            node[0] = LEAVING; converter_of[0] = me; check_cap()
         :: else ->
            assert(newest[me]);
            if
            :: node[1] == BATCH -> node[1] = LEAVING; converter_of[1] = me; check_cap()
            :: else
            fi
         fi }
    :: else
    fi;
    if
    :: back < NODES ->
       KEEP;
       atomic { STEP
         CHANGED;
         if
         :: !late[me] && node[back] == KUBE && converter_of[back] == NOBODY ->
            assert(newest[me]);
            assert(amount == 0);   /* the limit was reduced before */
            node[back] = BACK; converter_of[back] = me
         :: else
         fi }
    :: else
    fi;

give_up:
    /* LeaseLock.end */
    atomic { STEP
      if
      :: lease_fresh[me] && lease_holder == me ->
         lease_holder = NOBODY; lease_fresh[3 - me] = false; CHANGED
      :: else
      fi }
stand_by:
    atomic { FORGET; at_work[me] = false; late[me] = false }
    goto again
  } unless { killed[me] }

  /* SIGKILL, or the host stops. Its converters stop or continue. The host returns or stays down. */
  atomic {
    FORGET; killed[me] = false; at_work[me] = false; asleep[me] = false; late[me] = false; CHANGED;
    if
    :: skip
    :: for (n : 0 .. NODES - 1) {
         if
         :: converter_of[n] == me && node[n] == LEAVING -> node[n] = BATCH; converter_of[n] = NOBODY
         :: converter_of[n] == me && node[n] == BACK -> node[n] = KUBE; converter_of[n] = NOBODY
         :: else
         fi
       }
    fi;
    if
    :: goto again
    :: dead[me] = true
    fi
  }
}

/* The ends of conversions: each node reaches its target. */
proctype Converters() {
  do
  :: atomic { node[0] == LEAVING -> node[0] = KUBE; converter_of[0] = NOBODY; CHANGED }
  :: atomic { node[1] == LEAVING -> node[1] = KUBE; converter_of[1] = NOBODY; CHANGED }
  :: atomic { node[0] == BACK -> node[0] = BATCH; converter_of[0] = NOBODY; CHANGED }
  :: atomic { node[1] == BACK -> node[1] = BATCH; converter_of[1] = NOBODY; CHANGED }
  od
}

proctype Fate() {
  do
  :: atomic { crashes > 0 && at_work[1] -> crashes--; killed[1] = true }
  :: atomic { sleeps > 0 && at_work[1] && !killed[1] -> sleeps--; asleep[1] = true; late[1] = true }
  :: atomic { sleeps > 0 && at_work[2] && !killed[2] -> sleeps--; asleep[2] = true; late[2] = true }
  :: atomic { asleep[1] -> asleep[1] = false }
  :: atomic { asleep[2] -> asleep[2] = false }
  :: atomic { changes > 0 -> changes--; demand = false; CHANGED }
#ifdef REST
  :: atomic { changes > 0 -> changes-- } /* demand stays */
#endif
  od
}

#define NOW_LENT ((node[0] == KUBE) + (node[1] == KUBE))
#define RESTS \
  (lease_holder == NOBODY && !asked && amount == NOW_LENT && \
   NOW_LENT == demand * CAP && lent[0] == (node[0] == KUBE) && lent[1] == (node[1] == KUBE))

/* Each execution ends, and in each end state the registry and the ledger agree with the nodes. To
   check that executions end, the checker searches for cycles (pan -l: cycles without progress). */
#ifdef REST
proctype Judge() { timeout -> assert(RESTS) }
#endif

init {
  atomic {
    CHANGED;
    run Host(1); run Host(2); run Converters(); run Fate();
#ifdef REST
    run Judge()
#endif
  }
}
