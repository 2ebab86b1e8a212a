/* Two hosts that share one registry in Kubernetes, two nodes, a cap of one: every interleaving of
   their steps with one crash and one sleep. Each step is named as the function of dnm that does it.
   README.md beside this says what is proved, what is left out, and what the mutants find.

   Versions are not counted: `fresh` says whether a host knows the version that stands. Numbers are
   not counted either: `newest` says whose number stands in the registry. */

#define NODES 2
#define CAP 1
#define NOBODY 0

#define BATCH 0   /* Slurm has it */
#define LEAVING 1 /* a converter is taking it to Kubernetes */
#define KUBE 2
#define BACK 3    /* a converter is giving it back */

/* --- the cluster ------------------------------------------------------------------------- */
byte lease_holder = NOBODY;
bool lease_fresh[3], reg_fresh[3], doc_fresh[3];
bool newest[3];                 /* the number of this host's run stands in the registry */
bool asked = false;             /* the registry: a request, of which host, and the nodes lent */
byte asked_by = NOBODY;
bool lent[NODES], returning[NODES];
byte amount = 0;                /* what the ledger adds to the queue */
byte node[NODES];               /* BATCH at first */
byte converter_of[NODES];       /* the host whose converter has it */
bool demand = true;
bool fenced[3];                 /* only for the proof: another run followed and fenced this run */

/* For the question whether it comes to rest: a run that finds what the one before has found does
   the same again, nothing, so that a host only looks when there is news since it has last begun to. */
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
bool late[3];                   /* slept for longer than its Lease is good */
byte crashes = 1, sleeps = 1, changes = 1;

inline check_cap() {
  assert((node[0] != BATCH) + (node[1] != BATCH) <= CAP)
}

/* A step of a host: not while it sleeps. */
#define STEP !asleep[me] ->

/* LeaseLock.keep: renewed under the version that is known; what is another's by now ends the run. */
#define KEEP \
  atomic { STEP \
    if \
    :: !late[me] \
    :: late[me] && lease_fresh[me] && lease_holder == me -> \
       late[me] = false; lease_fresh[3 - me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }

/* LeaseLock.keep(anew=True): the API server renews it, whatever the clock of this host says. */
#define RENEW \
  atomic { STEP \
    if \
    :: lease_fresh[me] && lease_holder == me -> \
       late[me] = false; lease_fresh[3 - me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }

/* LeaseLock.take, then the first write: the number. From there on no earlier run can write. */
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

/* KubeState.write: the whole document, under the version that this run knows. */
#ifdef MUTANT_WRITE
#define REGISTRY_MAY (true)
#else
#define REGISTRY_MAY (reg_fresh[me])
#endif
#define WRITE \
  atomic { STEP \
    if \
    :: REGISTRY_MAY -> \
       assert(newest[me]);      /* no old number writes */ \
       asked = c_asked; asked_by = c_by; \
       lent[0] = c_lent[0]; lent[1] = c_lent[1]; \
       returning[0] = c_returning[0]; returning[1] = c_returning[1]; \
       reg_fresh[3 - me] = false; CHANGED \
    :: else -> goto stand_by \
    fi }

/* What a run knows ends with it. */
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
    /* LeaseLock.check: another is at work, unless its Lease was seen unchanged for its time. A run
       of this very place has died: this one has its lock. */
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
    /* follow_run: the run before did not give the Lease up, and may be asleep. Whatever it is
       about to write to the queue document must meet another version. */
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
    /* make_plan: pure */
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
      /* A request whose converter is at work nowhere any more: its time is over. */
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
    /* Nothing changes: nothing is written. */
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

    /* Actuator._replace_registry: the request is written before anything is done. */
    KEEP; WRITE;

    /* apply_queue_edit: the document is read again, the Lease is renewed, and the document is
       written under the version that was read. */
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
            assert(!fenced[me]);   /* no run writes that was followed and fenced */
            amount = want; doc_fresh[3 - me] = false; CHANGED
         :: else -> goto stand_by
         fi }
    :: else
    fi;

    if
    :: starts ->
       KEEP;
       /* ConverterCall: the keeper looks at the clock, and becomes the converter. */
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
            assert(amount == 0);   /* capacity went first */
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

  /* SIGKILL, or the host goes down: a converter dies with it or works on; the host comes back. */
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

/* Converters come to their end: the node is there, or it went wrong and all is as before. */
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
  :: atomic { changes > 0 -> changes-- } /* it stays */
#endif
  od
}

#define NOW_LENT ((node[0] == KUBE) + (node[1] == KUBE))
#define RESTS \
  (lease_holder == NOBODY && !asked && amount == NOW_LENT && \
   NOW_LENT == demand * CAP && lent[0] == (node[0] == KUBE) && lent[1] == (node[1] == KUBE))

/* Whatever happened: it ends, and when nobody has anything to do any more, the books are as the
   nodes are. That it ends is that no step leads back to where it was (pan -l, without progress). */
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
