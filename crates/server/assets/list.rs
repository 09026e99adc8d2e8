&[
    ("assets/console-Be6EoL8V.css", include_bytes!("assets/console-Be6EoL8V.css").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-DEkwAOza.js", include_bytes!("assets/console-DEkwAOza.js").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
