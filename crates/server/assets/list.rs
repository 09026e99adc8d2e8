&[
    ("assets/console-BAvJCFsm.js", include_bytes!("assets/console-BAvJCFsm.js").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-DoIuYRka.css", include_bytes!("assets/console-DoIuYRka.css").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
