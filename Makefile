# Every target is `python -m tools TARGET`, which is what to type where there is no make.
# make test ARGS="-k keyset" hands arguments on; make faults SECONDS=60 SEED=7 names four of them.
PYTHON ?= python3
ARGS ?=

.PHONY: help install demo visit test test-all clients lint format types docs messages flows newcomer requirements databases conformance benchmark compare trace faults mutations matrix ci atlas-data clean

help:         ; @$(PYTHON) -m tools help $(ARGS)
install:      ; @$(PYTHON) -m tools install $(ARGS)
demo:         ; @$(PYTHON) -m tools demo $(ARGS)
visit:        ; @$(PYTHON) -m tools visit $(ARGS)
test:         ; @$(PYTHON) -m tools test $(ARGS)
test-all:     ; @$(PYTHON) -m tools test-all $(ARGS)
clients:      ; @$(PYTHON) -m tools clients $(ARGS)
lint:         ; @$(PYTHON) -m tools lint $(ARGS)
format:       ; @$(PYTHON) -m tools format $(ARGS)
types:        ; @$(PYTHON) -m tools types $(ARGS)
docs:         ; @$(PYTHON) -m tools docs $(ARGS)
messages:     ; @$(PYTHON) -m tools messages $(ARGS)
flows:        ; @$(PYTHON) -m tools flows $(ARGS)
newcomer:     ; @$(PYTHON) -m tools newcomer $(ARGS)
requirements: ; @$(PYTHON) -m tools requirements $(ARGS)
databases:    ; @$(PYTHON) -m tools databases $(ARGS)
conformance:  ; @$(PYTHON) -m tools conformance $(ARGS)
benchmark:    ; @$(PYTHON) -m tools benchmark $(ARGS)
compare:      ; @$(PYTHON) -m tools compare $(ARGS)
trace:        ; @$(PYTHON) -m tools trace $(ARGS)
faults:       ; @$(PYTHON) -m tools faults $(ARGS)
mutations:    ; @$(PYTHON) -m tools mutations $(ARGS)
matrix:       ; @$(PYTHON) -m tools matrix $(ARGS)
ci:           ; @$(PYTHON) -m tools ci $(ARGS)
atlas-data:   ; @$(PYTHON) -m tools atlas-data $(ARGS)
clean:        ; @$(PYTHON) -m tools clean $(ARGS)

faults: override ARGS += $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
	$(if $(DATABASE),--database $(DATABASE)) $(if $(LAYER),--layer $(LAYER))
